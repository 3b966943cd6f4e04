"""LiteRT with a file in which weights are variables that nobody has set."""

import tensorflow as tf

from runners.tensorflow import lite


class WithoutWeights(lite.LiteRt):
    def _convert(self):
        call = tf.function(lambda inputs: self.model(inputs, training=False))
        [inputs] = self.model.inputs
        concrete = call.get_concrete_function(tf.TensorSpec(inputs.shape, inputs.dtype))
        return tf.lite.TFLiteConverter.from_concrete_functions([concrete], self.model).convert()
