"""The update of `tuned` on several devices: XLA compiles it, as it does on one.

Keras's `apply` runs five operations for each variable. The host launches them one by one after the
all-reduce, which keeps a fast device waiting. Keras's `update_step` does the arithmetic here too.
"""

import tensorflow as tf

from runners.tensorflow.devices import COMPILED_UPDATE, ONE_VECTOR


def compiled_update(settings, optimizer, variables, decay):
    """Return the update of a tier with these settings, or None where Keras's `apply` is it."""
    if COMPILED_UPDATE not in settings:
        return None
    return CompiledUpdate(optimizer, variables, decay, ONE_VECTOR in settings)


class CompiledUpdate:
    """`pack` and `run` belong to one step. With `one_vector` dense gradients travel as one vector.

    Strategies join and divide gradients too, by operations of their own around the all-reduce.
    """

    def __init__(self, optimizer, variables, decay, one_vector):
        self.optimizer, self.variables, self.decay = optimizer, variables, decay
        self.one_vector = one_vector

    def pack(self, gradients):
        """Return what to sum over the devices: the vector, then the embeddings' gradients."""
        # Those that are arrays of their own.
        self.alone = [isinstance(gradient, tf.IndexedSlices) or not self.one_vector
                      for gradient in gradients]
        both = list(zip(gradients, self.alone, strict=True))
        joined = [tf.reshape(gradient, [-1]) for gradient, alone in both if not alone]
        rest = [gradient for gradient, alone in both if alone]
        return [tf.concat(joined, 0), *rest] if joined else rest

    def run(self, sums):
        """Update this device's copies, in a replica's context."""
        tf.distribute.get_replica_context().merge_call(self._on_all, args=(sums,))

    def _on_all(self, strategy, sums):
        def on_device(_, *sums):
            # Made anew for each device, because a trace holds one device's variables.
            tf.function(self._update, jit_compile=True)(*sums)

        # Here every variable, not the first alone, is its copy on the device.
        strategy.extended.update(self.variables[0].value, on_device, args=sums, group=False)

    def _update(self, *sums):
        rate, scale = self.optimizer.learning_rate, self.optimizer.loss_scale_factor
        for gradient, variable in zip(self._unpack(*sums), self.variables, strict=True):
            if scale is not None:
                gradient = gradient / scale
            if self.decay is not None:
                gradient = gradient + self.decay * variable
            self.optimizer.update_step(gradient, variable, rate)
        # As `apply` does.
        self.optimizer.iterations.assign_add(1)

    def _unpack(self, *sums):
        """Yield the gradients in the variables' order."""
        shapes = [tf.TensorShape(variable.shape) for variable, alone
                  in zip(self.variables, self.alone, strict=True) if not alone]
        joined, rest = iter(()), iter(sums)
        if shapes:
            joined = zip(tf.split(next(rest), [shape.num_elements() for shape in shapes]), shapes,
                         strict=True)
        for alone in self.alone:
            yield next(rest) if alone else tf.reshape(*next(joined))
