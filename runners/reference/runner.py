"""The judge: NumPy's float64 trains the network, plainly, with the operations of `operations`.

Gradients and parameters leave in float64, sharper than what they judge. Threads are those of
NumPy's BLAS (OMP_NUM_THREADS). Several devices are shards of the batch, a thread each, normalised
by themselves as data-parallel training does; their gradients are averaged. Python 3.6 syntax, so
that it can stand beside every framework in that framework's own environment.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from runners import protocol
from runners.protocol import Different, Product, Unsupported
from runners.reference import llama, operations, transformers
from runners.reference.operations import softmax_cross_entropy

TIERS = dict.fromkeys(protocol.TIERS, "the reference has only stock")
TIERS["stock"] = []
OPERATIONS = dict(operations.OPERATIONS, **transformers.OPERATIONS, **llama.OPERATIONS)
PARAMETERS = dict(operations.PARAMETERS, **transformers.PARAMETERS, **llama.PARAMETERS)


class Runner(protocol.Runner):
    operations = OPERATIONS

    @staticmethod
    def describe():
        return {"release": np.__version__, "device_name": protocol.processor_name()}

    def __init__(self, task):
        refuse_what_is_missing(task, self.operations)
        self.shards = task.devices // task.ranks
        self.network = task.network
        self.rate, self.decay = task.network["learning_rate"], 0.0
        self.layers = task.network["layers"]
        self.trained = depends_on_parameters(self.layers)
        self.last_reader = {source: layer["name"]
                            for layer in self.layers for source in layer["inputs"]}
        random = np.random.RandomState(task.seed) if task.dropout else None
        # With dropout shards run in order, so that the masks follow the seed.
        self.threads = 1 if random else self.shards
        self.attributes = {
            layer["name"]: dict(layer["attributes"], random=random,
                                input_gradient=layer["inputs"][0] in self.trained)
            for layer in self.layers}
        self._build()

    def load(self, weights):
        for name, present in self.weights.items():
            if weights[name].shape != present.shape:
                raise ValueError("weights of {}: {}, the network has {}".format(
                    name, weights[name].shape, present.shape))
            # In place: new memory costs more than copying.
            self.weights[name][...] = weights[name]
            self.velocities[name][...] = 0
        self.running = {
            f"{layer['name']}.{kind}": np.full(layer["output_shape"][0], start)
            for layer in self.layers if layer["op"] == "batch_norm"
            for kind, start in (("mean", 0.0), ("variance", 1.0))}

    def feed(self, inputs, targets, residence):
        self.ring = [(self._place(x) if residence == "device" else x, y)
                     for x, y in zip(inputs, targets)]
        self.position = 0

    def step(self):
        self.last_loss, gradients = self.differentiate(*self.ring[self.position % len(self.ring)])
        for name, gradient in gradients:
            self.update(name, gradient)
        self.track()
        self.position += 1

    # NumPy returns when it is done.
    synchronize = staticmethod(protocol.nothing)

    def loss(self):
        return self.last_loss

    def schedule(self, rate, decay):
        self.rate, self.decay = rate, decay

    def infer(self, inputs):
        outputs = []
        for sample in inputs:
            values = {"input": self._place(sample[None])}
            for layer in self.layers:
                name = layer["name"]
                if layer["op"] == "batch_norm":
                    values[name] = self._by_averages(name, values[layer["inputs"][0]])
                elif layer["op"] == "dropout":
                    values[name] = values[layer["inputs"][0]]
                else:
                    values[name], _ = self._forward_layer(layer, values)
            outputs.append(values[self.layers[-1]["name"]])
        return np.concatenate(outputs)

    def _by_averages(self, name, x):
        mean, variance = (self.running[name + "." + kind] for kind in ("mean", "variance"))
        factor = self.weights[name + ".scale"] / np.sqrt(
            variance + self.attributes[name]["epsilon"])
        return ((x - mean[:, None, None]) * factor[:, None, None]
                + self.weights[name + ".shift"][:, None, None])

    def copies(self):
        return [self.parameters()] * self.shards

    def parameters(self):
        return {name: array.copy() for name, array in self.weights.items()}

    def statistics(self):
        return {name: array.copy() for name, array in self.running.items()}

    @staticmethod
    def product(size, task):
        """NumPy's own product in float32, for CPUs whose frameworks offer none."""
        refuse_other_arithmetic(task)
        generator = np.random.RandomState(task.seed)
        left, right = (generator.standard_normal((size, size)).astype(np.float32)
                       for _ in range(2))
        out = np.empty((size, size), np.float32)
        return Product(lambda: np.dot(left, right, out=out), lambda result: None)

    @staticmethod
    def stream(elements, task):
        refuse_other_arithmetic(task)
        source, target = np.ones(elements, np.float32), np.ones(elements, np.float32)
        return Product(lambda: np.multiply(source, np.float32(3), out=target), lambda result: None)

    def differentiate(self, x, targets):
        """Return the mean loss of a batch, and the name and gradient of each parameter."""
        if self.shards > 1:
            return self._differentiate_shards(x, targets)
        logits, saved = self.forward(self._place(x))
        self.moments = self._moments(saved)
        loss, dlogits = softmax_cross_entropy(logits, targets)
        return loss, self.backward(dlogits, saved)

    def update(self, name, gradient):
        """v = momentum v + g, w = w - lr v, in place."""
        velocity = self.velocities[name]
        velocity *= self.network["momentum"]
        velocity += gradient
        if self.decay:
            velocity += self.decay * self.weights[name]
        self.weights[name] -= self.rate * velocity

    def track(self):
        """Move the running statistics towards the moments of the last batch, in place."""
        for name, moment in self.moments.items():
            kept = self.attributes[name.partition(".")[0]]["running"]
            self.running[name] *= kept
            self.running[name] += (1 - kept) * moment

    def moved(self):
        """Return how far the moments of the last batch move a start: 0, of a variance 1."""
        found = {}
        for name, moment in self.moments.items():
            kept = self.attributes[name.partition(".")[0]]["running"]
            start = float(name.endswith(".variance"))
            found[name] = start * kept + (1 - kept) * moment - start
        return found

    def forward(self, x):
        """Return the last layer's output, and what each layer saved for its backward pass."""
        outputs, saved = {"input": self.store("input", x)}, {}
        for layer in self.layers:
            name = layer["name"]
            y, saved[name] = self._forward_layer(layer, outputs)
            outputs[name] = self.store(name, y)
            # Deep networks on large images would keep gigabytes that are not read again.
            for source in set(layer["inputs"]):
                if self.last_reader[source] == name:
                    del outputs[source]
        return outputs[self.layers[-1]["name"]], saved

    @staticmethod
    def store(name, y):
        """Return what memory keeps of a layer's output: all of it. INT8 replaces this."""
        return y

    def backward(self, dlogits, saved):
        """Yield each parameter's full name and gradient, from the last layer to the first.

        After that nothing reads the layer's weights, so they may be updated at once: FCN-S with
        118 M parameters needs no room for all gradients. A tied layer's gradient waits for that of
        the table.
        """
        gradients = {self.layers[-1]["name"]: dlogits}
        waiting = {}
        for layer in reversed(self.layers):
            name = layer["name"]
            if name not in self.trained:
                continue
            w = self._weights_of(layer)
            if name in gradients:
                _, backward = self.operations[layer["op"]]
                inputs, parameters = backward(self.attributes[name], w, saved.pop(name),
                                              gradients.pop(name))
            else:
                # Not on the path to the loss.
                inputs, parameters = [], {key: np.zeros(array.shape) for key, array in w.items()}
            for source, gradient in zip(layer["inputs"], inputs):
                if source in self.trained:
                    before = gradients.get(source)
                    gradients[source] = gradient if before is None else before + gradient
            for key, gradient in parameters.items():
                full = self._owner(layer) + "." + key
                if self._owner(layer) == name:
                    yield full, gradient + waiting.pop(full) if full in waiting else gradient
                else:
                    waiting[full] = gradient

    def _differentiate_shards(self, x, targets):
        def differentiate(part, wanted):
            logits, saved = self.forward(self._place(part))
            moments = self._moments(saved)
            loss, dlogits = softmax_cross_entropy(logits, wanted)
            gradients = dict(self.backward(dlogits / self.shards, saved))
            return loss / self.shards, gradients, moments

        shards = np.split(x, self.shards), np.split(targets, self.shards)
        with ThreadPoolExecutor(self.threads) as pool:
            losses, parts, moments = zip(*pool.map(differentiate, *shards))
        # Every runner's `statistics` are the first device's.
        self.moments = moments[0]
        return sum(losses), [(name, sum(part[name] for part in parts)) for name in parts[0]]

    def _build(self):
        """Make the parameters from what really flows, and compare every shape with the network."""
        kind = np.int32 if self.network["vocabulary"] else np.float64
        outputs = {"input": np.zeros([1] + list(self.network["input_shape"]), kind)}
        self.weights = {}
        # Layer -> the short names of its parameters.
        self.keys = {}
        for layer in self.layers:
            name = layer["name"]
            make = PARAMETERS.get(layer["op"], lambda a, x: {})
            try:
                shapes = make(layer["attributes"], outputs[layer["inputs"][0]].shape[1:])
                self.keys[name] = list(shapes)
                for key, shape in shapes.items():
                    self.weights[name + "." + key] = np.zeros(shape)
                outputs[name], _ = self._forward_layer(layer, outputs)
            except (ValueError, IndexError) as error:
                raise Different("layer {}: {}".format(name, error)) from error
        self.velocities = {name: np.zeros(array.shape) for name, array in self.weights.items()}
        protocol.assert_network(
            self.network, {name: array.shape[1:] for name, array in outputs.items()},
            {name: array.shape for name, array in self.weights.items()})

    def _forward_layer(self, layer, outputs):
        forward, _ = self.operations[layer["op"]]
        inputs = [outputs[source] for source in layer["inputs"]]
        return forward(self.attributes[layer["name"]], self._weights_of(layer), *inputs)

    def _moments(self, saved):
        """Return the batch's mean and variance of each batch norm, from what it saved."""
        return {name: moment for layer in self.layers if layer["op"] == "batch_norm"
                for name, moment in zip((layer["name"] + ".mean", layer["name"] + ".variance"),
                                        saved[layer["name"]][2:])}

    def _weights_of(self, layer):
        """Return this layer's parameters by their short names."""
        owner = self._owner(layer)
        return {key: self.weights[owner + "." + key] for key in self.keys[owner]}

    @staticmethod
    def _owner(layer):
        """Name the layer whose parameters this layer uses: a tied head uses the embedding's."""
        return layer["attributes"].get("tied", layer["name"])

    def _place(self, x):
        return x if self.network["vocabulary"] else x.astype(np.float64, copy=False)


def refuse_what_is_missing(task, operations):
    refuse_other_arithmetic(task)
    protocol.settings_of(task, TIERS)
    for layer in task.network["layers"]:
        protocol.lowered(operations, layer)


def refuse_other_arithmetic(task):
    if task.device != "cpu":
        raise Unsupported("device '{}': NumPy runs on the CPU alone".format(task.device))
    if task.precision != "fp32":
        raise Unsupported("precision '{}': the reference computes in float64 and judges fp32"
                          .format(task.precision))


def depends_on_parameters(layers):
    """Name the layers whose output some parameter changes: all that backward must visit."""
    trained = set()
    for layer in layers:
        if layer["parameters"] or trained.intersection(layer["inputs"]):
            trained.add(layer["name"])
    return trained
