"""The tinygrad runner."""
