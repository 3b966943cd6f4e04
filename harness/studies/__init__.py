"""Experiments on single operations and on aggregation."""
