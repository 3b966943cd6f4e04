"""Ways in which each of PyTorch's ranks holds a part of the network alone."""
