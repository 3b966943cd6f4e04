"""Kernels and operators of a trace, and what they say."""
