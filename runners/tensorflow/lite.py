"""LiteRT: the model that `inference` runs, converted by TensorFlow's own converter.

`tf.lite` writes one file of the Keras model with a fixed batch, and LiteRT's interpreter runs it
with its XNNPACK kernels, which are on by default.
"""

import importlib.metadata

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from runners import protocol
from runners.inference import flat
from runners.protocol import Unsupported
from runners.tensorflow.inference import TensorFlow

TIERS = {"stock": [], "compiled": [], "tuned": [], "uncompiled": "LiteRT converts every network"}


class LiteRt(TensorFlow):
    @staticmethod
    def describe():
        return {"release": importlib.metadata.version("ai-edge-litert"),
                "device_name": protocol.processor_name(),
                "libraries": {"tensorflow": tf.__version__}}

    def __init__(self, task, arrays):
        if task.device != "cpu" or task.precision != "fp32":
            raise Unsupported(f"{task.precision} on {task.device}: LiteRT runs in fp32 on "
                              "processors here")
        super().__init__(task, arrays)
        try:
            model = self._convert()
        except tf.errors.OpError as error:
            raise Unsupported("tf.lite: " + str(error).strip().splitlines()[0]) from error
        self.model_bytes = len(model)
        self.interpreter = Interpreter(model_content=model, num_threads=task.threads)
        self.interpreter.allocate_tensors()
        self.place = self.interpreter.get_input_details()[0]["index"]
        self.answer = self.interpreter.get_output_details()[0]["index"]

    def _settings(self):
        return protocol.settings_of(self.task, TIERS)

    def _convert(self):
        """Return the file of the model, weights and all."""
        return tf.lite.TFLiteConverter.from_keras_model(self.model).convert()

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, "host")

    def step(self):
        self.interpreter.set_tensor(self.place, self.next_batch())
        self.interpreter.invoke()

    # A call returns when its outputs are there.
    synchronize = staticmethod(protocol.nothing)

    def output(self, rows):
        return flat(np.asarray(self.interpreter.get_tensor(self.answer)))[rows]

    def profile(self, run):
        raise Unsupported("LiteRT's interpreter offers no profile by operator in Python")
