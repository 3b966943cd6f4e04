"""Flax's runner with one fault each."""

from flax import nnx

from runners.flax import layers
from runners.flax.runner import Runner
from tests.faults import planted


def with_default_epsilon(a, shape, options):
    return nnx.LayerNorm(shape[-1], **options)


# 1e-6, which Flax takes where nothing is said.
FlaxEpsilon = planted(Runner, layers, LAYERS={**layers.LAYERS, "layer_norm": with_default_epsilon})
