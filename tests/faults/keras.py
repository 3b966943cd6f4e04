"""The runner of Keras 3 on JAX and on PyTorch with one fault each."""

import keras

from runners.keras.runner import Runner, backend
from tests.faults import planted

Norm = keras.layers.LayerNormalization


def with_default_epsilon(epsilon, **options):
    return Norm(**options)


def without_zero_grad(self, *batch):
    """Let gradients add up: `zero_grad` is forgotten."""
    zero_grad, self.model.zero_grad = self.model.zero_grad, lambda: None
    try:
        return step(self, *batch)
    finally:
        self.model.zero_grad = zero_grad


step = backend.Trainer.step
# 1e-3, which Keras takes where nothing is said.
KerasEpsilon = planted(Runner, keras.layers, LayerNormalization=with_default_epsilon)
Accumulates = planted(Runner, backend.Trainer, step=without_zero_grad)
