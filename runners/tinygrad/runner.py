"""tinygrad on a CPU, whose kernels clang compiles: the loop of its documentation.

`compiled` captures the step in a `TinyJit` and replays it. tinygrad is lazy: a loss that is read
after `optimizer.step()` is that of the *updated* parameters, so each step realises it together with
the update. Tensors have PyTorch's layouts, which are ours.
"""

import importlib.metadata

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn
from tinygrad.helpers import NUM_CPU_THREADS

from runners import protocol
from runners.tinygrad.layers import Net

TIERS = {
    "stock": [],
    "compiled": ["TinyJit"],
    "tuned": ["TinyJit"],
    "uncompiled": "tinygrad's stock has no TinyJit",
}
# Ours -> tinygrad's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "layer_norm": {"scale": "weight", "shift": "bias"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "weight_ih", "weight_hidden": "weight_hh", "bias": "bias_ih"},
}


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        return {"release": importlib.metadata.version("tinygrad"),
                "device_name": protocol.processor_name(),
                "libraries": {"device": Device.DEFAULT}}

    def __init__(self, task):
        protocol.refuse_all_but_fp32_on_a_cpu(
            task, "tinygrad", "this runner has not been tried with tinygrad's CUDA device")
        self.settings = protocol.settings_of(task, TIERS)
        NUM_CPU_THREADS.value = task.threads
        Tensor.manual_seed(task.seed)
        self.task, self.network = task, task.network
        self.net = Net(task.network)
        paths = protocol.native_paths(task.network, PARAMETER_NAMES)
        self.trained = {name: getattr(self.net.parts[layer], theirs)
                        for name, (layer, theirs) in paths.items()}
        for tensor in self.trained.values():
            tensor.replace(tensor.contiguous()).realize()
        protocol.assert_network(task.network, self._output_shapes(), {
            name: tensor.shape for name, tensor in self.trained.items()})
        with Context(TRAINING=1):
            self.optimizer = nn.optim.SGD(list(self.trained.values()),
                                          task.network["learning_rate"],
                                          momentum=task.network["momentum"])
        # In the optimiser's order. A captured step keeps its memory, so it is filled in place.
        for moment in self.optimizer.b:
            moment.replace(moment.contiguous()).realize()
        self.train = TinyJit(self._train) if "TinyJit" in self.settings else self._train

    def load(self, weights):
        for name, tensor in self.trained.items():
            fill(tensor, weights[name])
        for moment in self.optimizer.b:
            fill(moment, np.zeros(moment.shape, np.float32))
        for norm in self._batch_norms().values():
            fill(norm.running_mean, np.zeros(norm.running_mean.shape, np.float32))
            fill(norm.running_var, np.ones(norm.running_var.shape, np.float32))

    def feed(self, inputs, targets, residence):
        self.ring = list(zip(inputs, targets, strict=True))
        if residence == "device":
            self.ring = [placed(batch) for batch in self.ring]
        self.position = 0

    def step(self):
        batch = self.next_batch()
        with Context(TRAINING=1):
            self.last_loss = self.train(*(batch if isinstance(batch[0], Tensor)
                                          else placed(batch)))

    def synchronize(self):
        Device[Device.DEFAULT].synchronize()

    def loss(self):
        return self.last_loss.item()

    def parameters(self):
        return {name: np.array(tensor.numpy(), np.float32)
                for name, tensor in self.trained.items()}

    def statistics(self):
        return {f"{name}.{kind}": np.array(tensor.numpy())
                for name, norm in self._batch_norms().items()
                for kind, tensor in (("mean", norm.running_mean), ("variance", norm.running_var))}

    def _train(self, inputs, targets):
        logits = self.net.outputs(inputs)[self.network["layers"][-1]["name"]]
        logits = logits.reshape(-1, logits.shape[-1])  # (B, K) or (B T, K)
        loss = logits.sparse_categorical_crossentropy(targets.reshape(-1))
        self.optimizer.zero_grad()
        loss.backward()
        return self._update(loss)

    def _update(self, loss):
        running = [tensor for norm in self._batch_norms().values()
                   for tensor in (norm.running_mean, norm.running_var)]
        return loss.realize(*self.optimizer.schedule_step(), *running)

    def _batch_norms(self):
        return {layer["name"]: self.net.parts[layer["name"]] for layer in self.network["layers"]
                if layer["op"] == "batch_norm"}

    def _output_shapes(self):
        x = np.zeros((2, *self.network["input_shape"]),
                     np.int32 if self.network["vocabulary"] else np.float32)
        return {name: tuple(output.shape[1:])
                for name, output in self.net.outputs(Tensor(x)).items()}


def fill(tensor, array):
    tensor.assign(Tensor(np.ascontiguousarray(array))).realize()


def placed(batch):
    return [Tensor(np.ascontiguousarray(each)).realize() for each in batch]
