"""Keras 3: the model that every backend trains, and the rows on JAX and on PyTorch."""
