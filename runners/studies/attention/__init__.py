"""Scaled dot-product attention in each framework, and the float64 result that all must have."""
