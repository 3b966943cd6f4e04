"""JAX that adds the devices' gradients up and does not average them."""

from jax import lax

from runners.jax.runner import Runner

__all__ = ["Runner"]

lax.pmean = lax.psum
