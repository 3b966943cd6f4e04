"""Runs out of memory in its first step, as frameworks report it."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def step(self):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
