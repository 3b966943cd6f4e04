"""Counters sampled while a process is timed."""
