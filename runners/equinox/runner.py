"""Equinox with optax: a module of one sample, `jax.vmap` over the batch, `eqx.filter_jit`.

As Equinox's examples write it. Its layers keep our layouts but for convolutions' biases. Below
fp32 the module is cast inside the loss, all but batch norms: Equinox has no policy for that.
"""

from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from runners import protocol
from runners.equinox.layers import Net, output_shapes
from runners.jax.device import prepare

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
TIERS = {
    "stock": ["eqx.filter_jit"],
    "compiled": ["eqx.filter_jit"],
    "tuned": ["eqx.filter_jit", "donate=all-except-first"],
    "uncompiled": "JAX's operations one by one are for finding errors",
}
# Ours -> the path to Equinox's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "layer_norm": {"scale": "weight", "shift": "bias"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "cell.weight_ih", "weight_hidden": "cell.weight_hh",
             "bias": "cell.bias"},
}


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        # Asking JAX for its devices would fix the CPU's threads.
        return {"release": eqx.__version__, "device_name": protocol.processor_name(),
                "libraries": {"jax": jax.__version__, "optax": optax.__version__}}

    def __init__(self, task):
        protocol.refuse_unknown(task, precisions=DTYPES)
        self.device = prepare(task)
        self.settings = protocol.settings_of(task, TIERS)
        self.task, self.network = task, task.network
        self.model, self.state = eqx.nn.make_with_state(Net)(task.network)
        self.fresh = self.state
        self.paths = protocol.native_paths(task.network, PARAMETER_NAMES)
        count = sum(each.size for each in jax.tree.leaves(eqx.filter(
            self.model, eqx.is_inexact_array)))
        shapes = {name: array.shape for name, array in self.parameters().items()}
        if count != sum(int(np.prod(shape)) for shape in shapes.values()):
            raise protocol.Different(f"Equinox has {count} trained numbers, the network has others")
        protocol.assert_network(task.network,
                                output_shapes(self.model, self.state, task.network), shapes)
        self.optimizer = optax.sgd(task.network["learning_rate"], task.network["momentum"])
        self._write_step()
        # The key of the next dropout masks. Loading weights does not change it.
        self.key = jax.random.PRNGKey(task.seed)
        self._start()

    def _write_step(self):
        dtype, optimizer = DTYPES[self.task.precision], self.optimizer
        last = self.network["layers"][-1]["name"]

        def mean_loss(model, state, key, inputs, targets):
            model = cast(model, dtype)
            if not jnp.issubdtype(inputs.dtype, jnp.integer):
                inputs = inputs.astype(dtype)
            keys = jax.random.split(key, len(inputs))
            outputs, state = jax.vmap(model.outputs, axis_name="batch", in_axes=(0, None, 0),
                                      out_axes=(0, None))(inputs, state, keys)
            logits = outputs[last].astype(jnp.float32)  # (B, K) or (B, T, K)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean(), state

        # The batch comes first: the ring feeds it again.
        donated = "all-except-first"

        @eqx.filter_jit(donate=donated if f"donate={donated}" in self.settings else "none")
        def train_step(batch, everything):
            model, state, moments, key = everything
            key, now = jax.random.split(key)
            (loss, state), gradients = eqx.filter_value_and_grad(mean_loss, has_aux=True)(
                model, state, now, *batch)
            updates, moments = optimizer.update(gradients, moments, model)
            return (eqx.apply_updates(model, updates), state, moments, key), loss

        self.train_step = train_step

    def load(self, weights):
        self.model = eqx.tree_at(
            lambda model: [found(model.parts, path) for path in self.paths.values()], self.model,
            [jnp.array(weights[name].reshape(found(self.model.parts, path).shape), copy=True)
             for name, path in self.paths.items()])
        self._start()

    def feed(self, inputs, targets, residence):
        self.ring = list(zip(np.ascontiguousarray(inputs), targets, strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [jax.device_put(batch, self.device) for batch in self.ring]
        self.position = 0

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else jax.device_put(batch, self.device)

    def step(self):
        everything = self.model, self.state, self.moments, self.key
        everything, self.last_loss = self.train_step(self.next_batch(), everything)
        self.model, self.state, self.moments, self.key = everything

    def synchronize(self):
        jax.block_until_ready(eqx.filter((self.model, self.moments), eqx.is_array))

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        shapes = {f"{layer['name']}.{name}": shape for layer in self.network["layers"]
                  for name, shape in layer["parameters"].items()}
        return {name: np.array(squeezed(found(self.model.parts, path), len(shapes[name])))
                for name, path in self.paths.items()}

    def statistics(self):
        return {f"{layer['name']}.{kind}": np.array(value)
                for layer in self.network["layers"] if layer["op"] == "batch_norm"
                for kind, value in zip(
                    ("mean", "variance"),
                    self.state.get(self.model.parts[layer["name"]].batch_state_index),
                    strict=True)}

    def peak_memory(self):
        return self.device.memory_stats()["peak_bytes_in_use"]

    def _start(self):
        """Forget the momentum and the running statistics."""
        self.moments = self.optimizer.init(eqx.filter(self.model, eqx.is_inexact_array))
        # A copy, because a step may take the memory of what it is given.
        self.state = jax.tree.map(lambda array: jnp.array(array, copy=True), self.fresh)
        # As a step leaves it: JAX compiles the step anew for arrays that are bound to no device.
        self.model, self.state, self.moments, self.key = eqx.filter_shard(
            (self.model, self.state, self.moments, self.key), self.device)


def cast(model, dtype):
    """Return the module with its arrays in `dtype`, batch norms left alone."""

    def is_norm(node):
        return isinstance(node, eqx.nn.BatchNorm)

    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf,
                        model, is_leaf=is_norm)


def found(parts, path):
    """Follow the path of a parameter: its layer, then attributes."""
    layer, attributes = path
    return attrgetter(attributes)(parts[layer])


def squeezed(array, rank):
    """Drop the last axes beyond `rank` if they are 1: a convolution's bias is (C, 1, 1)."""
    return array.reshape(array.shape[:rank]) if array.shape[rank:] == (1,) * (
        array.ndim - rank) else array
