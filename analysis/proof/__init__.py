"""Tolerances and gates: which results count."""
