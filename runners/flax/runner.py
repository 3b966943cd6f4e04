"""Flax NNX with optax: its tutorial's `nnx.jit` of a step on a module and an `nnx.Optimizer`.

`tuned` is what Flax's guide to performance adds: `nnx.cached_partial`, which walks the module's
graph once and not in each call. Weights are turned at the border to how NNX stores them.
"""

from operator import attrgetter

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from runners import protocol
from runners.arrays import transposed
from runners.flax.layers import Net, output_shapes
from runners.jax.device import prepare

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
TIERS = {
    "stock": ["nnx.jit"],
    "compiled": ["nnx.jit"],
    "tuned": ["nnx.jit", "nnx.cached_partial"],
    "uncompiled": "JAX's operations one by one are for finding errors",
}
# Ours -> the path to Flax's, where they differ.
PARAMETER_NAMES = {
    "dense": {"weight": "kernel"}, "linear": {"weight": "kernel"}, "conv2d": {"weight": "kernel"},
    "batch_norm": {"shift": "bias"}, "layer_norm": {"shift": "bias"},
    "embedding": {"weight": "embedding"},
    "lstm": {"weight_input": "cell.dense_i.kernel", "weight_hidden": "cell.dense_h.kernel",
             "bias": "cell.dense_h.bias"},
}
# Axes of a canonical weight in the order in which NNX stores them, by its rank.
TURNED = {2: (1, 0), 4: (2, 3, 1, 0)}
KEPT = ("embedding", "positions")


@nnx.jit
def train_step(model, optimizer, inputs, targets):
    def mean_loss(model):
        logits = model(inputs)  # (B, K) or (B, T, K)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits.astype(jnp.float32), targets).mean()

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        # Asking JAX for its devices would fix the CPU's threads.
        return {"release": flax.__version__, "device_name": protocol.processor_name(),
                "libraries": {"jax": jax.__version__, "optax": optax.__version__}}

    def __init__(self, task):
        protocol.refuse_unknown(task, precisions=DTYPES)
        self.device = prepare(task)
        self.settings = protocol.settings_of(task, TIERS)
        self.task, self.network = task, task.network
        self.model = Net(task.network, DTYPES[task.precision], task.seed)
        self.ops = {layer["name"]: layer["op"] for layer in task.network["layers"]}
        paths = protocol.native_paths(task.network, PARAMETER_NAMES)
        self.trained = {name: attrgetter(".".join(path))(self.model)
                        for name, path in paths.items()}
        count = sum(each.size for each in jax.tree.leaves(nnx.state(self.model, nnx.Param)))
        shapes = {name: array.shape for name, array in self.parameters().items()}
        if count != sum(int(np.prod(shape)) for shape in shapes.values()):
            raise protocol.Different(f"Flax has {count} trained numbers, the network has others")
        protocol.assert_network(task.network, output_shapes(self.model, task.network), shapes)
        # One for all loads: `nnx.jit` compiles the step anew for another.
        self.sgd = optax.sgd(task.network["learning_rate"], task.network["momentum"])
        self._start()

    def load(self, weights):
        for name, variable in self.trained.items():
            order = self._order(name, weights[name].ndim)
            self._set(variable, transposed(weights[name], order))
        for norm in self._batch_norms().values():
            self._set(norm.mean, np.zeros(norm.mean.shape, np.float32))
            self._set(norm.var, np.ones(norm.var.shape, np.float32))
        self._start()

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        self.ring = list(zip(np.ascontiguousarray(inputs), targets, strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [jax.device_put(batch, self.device) for batch in self.ring]
        self.position = 0

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else jax.device_put(batch, self.device)

    def step(self):
        self.last_loss = self.train(*self.next_batch())

    def synchronize(self):
        jax.block_until_ready(nnx.state(self.model))

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        found = {}
        for name, variable in self.trained.items():
            array = np.asarray(variable[...])
            found[name] = transposed(array, np.argsort(self._order(name, array.ndim)))
        return found

    def statistics(self):
        return {f"{name}.{kind}": np.array(variable[...])
                for name, norm in self._batch_norms().items()
                for kind, variable in (("mean", norm.mean), ("variance", norm.var))}

    def peak_memory(self):
        return self.device.memory_stats()["peak_bytes_in_use"]

    def _start(self):
        """Forget the momentum."""
        self.optimizer = nnx.Optimizer(self.model, self.sgd, wrt=nnx.Param)
        # As a step leaves it: JAX compiles the step anew for arrays that are bound to no device.
        for each in (self.model, self.optimizer):
            nnx.update(each, jax.device_put(nnx.state(each), self.device))
        if "nnx.cached_partial" in self.settings:
            self.train = nnx.cached_partial(train_step, self.model, self.optimizer)
        else:
            self.train = lambda *batch: train_step(self.model, self.optimizer, *batch)

    def _set(self, variable, array):
        variable.set_value(jax.device_put(array, self.device))

    def _order(self, name, rank):
        kept = self.ops[name.partition(".")[0]] in KEPT
        return tuple(range(rank)) if kept else TURNED.get(rank, (0,))

    def _batch_norms(self):
        return {name: getattr(self.model, name) for name, op in self.ops.items()
                if op == "batch_norm"}
