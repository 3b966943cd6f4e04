"""The TensorFlow runner."""
