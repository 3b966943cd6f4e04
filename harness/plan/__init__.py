"""Suites, and the trials that a suite means on this machine."""
