"""The NumPy reference."""
