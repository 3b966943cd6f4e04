"""TensorFlow running trained networks: the Keras model in a `tf.function`, `training=False`.

Keras's own rule says whether XLA compiles it, as for training (`runner`).
"""

import keras
import numpy as np
import tensorflow as tf

from runners import protocol
from runners.inference import Engine, flat, trained
from runners.keras.layers import build_model, canonical_shape, full_name, layouts, to_keras
from runners.tensorflow.devices import lstm_options, prepare_devices, tiers
from runners.tensorflow.operations import local_response_norm
from runners.tensorflow.runner import Runner as Trainer


class TensorFlow(Engine):
    describe = staticmethod(Trainer.describe)

    def __init__(self, task, arrays):
        self.task = task
        self.devices = prepare_devices(task)
        with self._where():
            self.model, outputs = build_model(task, lstm_options(task, task.tuning),
                                              local_response_norm)
        self.settings = self._settings()
        variables = {full_name(variable): variable
                     for variable in self.model.trainable_variables}
        protocol.assert_network(task.network, outputs, {
            name: canonical_shape(variable) for name, variable in variables.items()})
        stored = to_keras(trained(arrays), variables, layouts(task.network))
        for name, array in stored.items():
            variables[name].assign(array)
        for layer in self.model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.moving_mean.assign(arrays[f"{layer.name}.mean"])
                layer.moving_variance.assign(arrays[f"{layer.name}.variance"])
        self.count = sum(int(np.prod(variable.shape)) for variable in variables.values())
        self.run = tf.function(lambda inputs: self.model(inputs, training=False),
                               jit_compile=True if "XLA" in self.settings else None)

    def parameter_count(self):
        return self.count

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            # (N, B, C, H, W) -> (N, B, H, W, C)
            inputs = inputs.transpose(0, 1, 3, 4, 2)
        kind = np.int64 if self.task.network["vocabulary"] else np.float32
        self.ring = list(np.ascontiguousarray(inputs, kind))
        self.on_device = residence == "device"
        with self._where():
            if self.on_device:
                self.ring = [tf.constant(batch) for batch in self.ring]
        self.position = 0
        if self.task.device == "cuda":
            tf.config.experimental.reset_memory_stats(self.devices[0])

    def step(self):
        with self._where():
            self.outputs = self.run(tf.constant(self.next_batch()))
            if not self.on_device:
                self.outputs = self.outputs.numpy()

    def synchronize(self):
        # `tf.test.experimental.sync_devices` would wait for the host too, 8 us a call.
        with self._where():
            tf.raw_ops.SyncDevice()

    peak_memory = Trainer.peak_memory
    profile = Trainer.profile

    def output(self, rows):
        if not self.on_device:
            return flat(self.outputs)[rows]
        shape = [-1, self.outputs.shape[-1]]
        return np.asarray(tf.gather(tf.reshape(self.outputs, shape), rows), np.float32)

    def _settings(self):
        return protocol.settings_of(self.task, tiers(self.task, self._compiles))

    def _where(self):
        return tf.device(self.devices[0])

    def _compiles(self, asked):
        """Return whether Keras lets XLA compile the model, when asked with True or "auto"."""
        self.model.compile(jit_compile=asked)
        return bool(self.model.jit_compile)
