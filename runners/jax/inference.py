"""JAX running trained networks: the runner's own inference under `jax.jit`, on one device."""

import jax
import numpy as np

from runners.inference import STATISTICS, Engine, flat, trained
from runners.jax.runner import Runner as Trainer


class WithoutMomentum(Trainer):
    """A runner that only infers. It compiles nothing before it trains."""

    def _new_state(self, parameters):
        return dict(super()._new_state(parameters), velocity=None)


class Jax(Engine):
    describe = staticmethod(Trainer.describe)

    def __init__(self, task, arrays):
        self.trainer = WithoutMomentum(task)
        self.settings = self.trainer.settings
        self.trainer.load(trained(arrays))
        self.devices = self.trainer.devices
        self.parameters = self.trainer.state["parameters"]
        self.statistics = jax.device_put({
            layer["name"]: {kind: arrays[f"{layer['name']}.{kind}"] for kind in STATISTICS}
            for layer in task.network["layers"] if layer["op"] == "batch_norm"}, self.devices[0])
        self.run = self.trainer.inference

    def parameter_count(self):
        return sum(array.size for array in jax.tree.leaves(self.parameters))

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            # (N, B, C, H, W) -> (N, B, H, W, C)
            inputs = inputs.transpose(0, 1, 3, 4, 2)
        self.ring = list(np.ascontiguousarray(inputs))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = jax.block_until_ready(jax.device_put(self.ring, self.devices[0]))
        self.position, self.outputs = 0, None

    def step(self):
        batch = self.next_batch()
        if not self.on_device:
            batch = jax.device_put(batch, self.devices[0])
        self.outputs = self.run(self.parameters, self.statistics, batch)
        if not self.on_device:
            self.outputs = np.asarray(self.outputs)

    def synchronize(self):
        jax.block_until_ready(self.outputs)

    peak_memory = Trainer.peak_memory
    profile = Trainer.profile
    meanings = Trainer.meanings

    def output(self, rows):
        return np.asarray(flat(self.outputs)[np.array(rows)])

    def _program(self):
        batch = jax.device_put(self.batch(0), self.devices[0])
        return self.run.lower(self.parameters, self.statistics, batch).compile().as_text()
