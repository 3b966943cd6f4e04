"""Gradient aggregation: links, strategies, predictions."""
