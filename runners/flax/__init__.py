"""The Flax NNX runner."""
