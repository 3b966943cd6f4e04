"""The PyTorch runner and its aggregation strategies."""
