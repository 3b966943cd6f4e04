"""Keras 3 on JAX or PyTorch: TensorFlow's model too, by the loops of Keras's guides.

KERAS_BACKEND says which backend; `on_jax` and `on_torch` hold what differs. `stock` is the guide
"Writing a training loop from scratch" of each: one jitted function of a state that it is given, or
`backward` and `optimizer.apply`. `compiled` hands the latter's model and loss to `torch.compile`.
"""

import importlib

import keras
import numpy as np

from runners import protocol
from runners.keras.layers import (
    POLICIES,
    build_model,
    canonical_shape,
    full_name,
    layouts,
    to_canonical,
    to_keras,
)

backend = importlib.import_module("runners.keras.on_" + keras.backend.backend())

# A user's ~/.keras/keras.json may say something else.
keras.config.set_image_data_format("channels_last")
keras.config.set_floatx("float32")


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        return {"release": keras.__version__, "device_name": backend.device_name(),
                "libraries": {"backend": keras.backend.backend(), **backend.libraries()}}

    def __init__(self, task):
        protocol.refuse_unknown(task, precisions=POLICIES)
        if task.precision == "fp16":
            raise protocol.Unsupported("fp16: this runner has no loss scale; take bf16")
        self.settings = protocol.settings_of(task, backend.TIERS)
        self.task = task
        self.device = backend.prepare(task)
        keras.utils.set_random_seed(task.seed)
        with keras.device(backend.keras_device(self.device)):
            self.model, outputs = build_model(task, {})
            self.optimizer = keras.optimizers.SGD(task.network["learning_rate"],
                                                  momentum=task.network["momentum"])
            self.optimizer.build(self.model.trainable_variables)
        self.variables = {full_name(variable): variable
                          for variable in self.model.trainable_variables}
        protocol.assert_network(task.network, outputs, {
            name: canonical_shape(variable) for name, variable in self.variables.items()})
        self.layouts = layouts(task.network)
        self.trainer = backend.Trainer(self.model, self.optimizer, self.device, self.settings)

    def load(self, weights):
        for name, array in to_keras(weights, self.variables, self.layouts).items():
            self.variables[name].assign(array)
        for momentum in self.optimizer.momentums:
            momentum.assign(np.zeros(momentum.shape, np.float32))
        for norm in self._batch_norms():
            norm.moving_mean.assign(np.zeros(norm.moving_mean.shape, np.float32))
            norm.moving_variance.assign(np.ones(norm.moving_variance.shape, np.float32))
        self.trainer.take()

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        kind = np.int32 if self.task.network["vocabulary"] else np.float32
        self.ring = list(zip(np.ascontiguousarray(inputs, kind),
                             np.ascontiguousarray(targets, np.int32), strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [self.trainer.place(batch) for batch in self.ring]
        self.position = 0

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else self.trainer.place(batch)

    def step(self):
        self.last_loss = self.trainer.step(*self.next_batch())

    def synchronize(self):
        self.trainer.synchronize()

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        self.trainer.give_back()
        return to_canonical({name: keras.ops.convert_to_numpy(variable)
                             for name, variable in self.variables.items()}, self.layouts)

    def statistics(self):
        self.trainer.give_back()
        return {f"{norm.name}.{kind}": np.array(keras.ops.convert_to_numpy(variable))
                for norm in self._batch_norms()
                for kind, variable in (("mean", norm.moving_mean),
                                       ("variance", norm.moving_variance))}

    def peak_memory(self):
        return backend.peak_memory(self.device)

    def _batch_norms(self):
        return [layer for layer in self.model.layers
                if isinstance(layer, keras.layers.BatchNormalization)]
