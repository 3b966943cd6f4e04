"""The PyTensor runner."""
