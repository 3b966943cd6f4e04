"""Inference: what a trained network is, the proof of its outputs, and its processes."""
