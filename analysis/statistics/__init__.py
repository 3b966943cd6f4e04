"""Confidence intervals, calibration and warm-up detection."""
