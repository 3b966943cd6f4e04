"""JAX running trained networks: the forward pass of `layers` under `jax.jit`, on one device.

Weights are arguments, as in JAX's libraries, so that XLA does not fold them into the code.
"""

import jax
import jax.numpy as jnp
import numpy as np

from runners.inference import STATISTICS, Engine, flat, trained
from runners.jax.layers import forward
from runners.jax.profile import NAMELESS, meanings_of, operators_of
from runners.jax.runner import Runner as Trainer


class Jax(Engine):
    describe = staticmethod(Trainer.describe)

    def __init__(self, task, arrays):
        # It compiles nothing before it trains.
        self.trainer = Trainer(task)
        self.settings = self.trainer.settings
        self.trainer.load(trained(arrays))
        layers, style = task.network["layers"], self.trainer.style._replace(training=False)
        self.device = self.trainer.devices[0]
        self.parameters = self.trainer.state["parameters"]
        self.statistics = jax.device_put({
            layer["name"]: {kind: arrays[f"{layer['name']}.{kind}"] for kind in STATISTICS}
            for layer in layers if layer["op"] == "batch_norm"}, self.device)

        def run(parameters, statistics, inputs):
            outputs, _ = forward(layers, style, parameters, statistics, None, inputs)
            return outputs[layers[-1]["name"]].astype(jnp.float32)

        self.run = self.trainer.compile(run, None, None)

    def parameter_count(self):
        return sum(array.size for array in jax.tree.leaves(self.parameters))

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            # (N, B, C, H, W) -> (N, B, H, W, C)
            inputs = inputs.transpose(0, 1, 3, 4, 2)
        self.ring = list(np.ascontiguousarray(inputs))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = jax.block_until_ready(jax.device_put(self.ring, self.device))
        self.position, self.outputs = 0, None

    def step(self):
        batch = self.next_batch()
        if not self.on_device:
            batch = jax.device_put(batch, self.device)
        self.outputs = self.run(self.parameters, self.statistics, batch)
        if not self.on_device:
            self.outputs = np.asarray(self.outputs)

    def synchronize(self):
        jax.block_until_ready(self.outputs)

    def peak_memory(self):
        return self.trainer.peak_memory()

    def output(self, rows):
        return np.asarray(flat(self.outputs)[np.array(rows)])

    def meanings(self, kernels):
        return meanings_of(self._program(), kernels) if any(map(NAMELESS.match, kernels)) else {}

    def profile(self, run):
        return operators_of(run, self._program())

    def _program(self):
        batch = jax.device_put(self.batch(0), self.device)
        return self.run.lower(self.parameters, self.statistics, batch).compile().as_text()
