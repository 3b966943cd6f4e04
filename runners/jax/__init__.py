"""The JAX runner."""
