"""Prints lines that look like answers on stdout, from Python and from below it."""

import os

from runners.reference.runner import Runner as Reference

FORGED = '{"id": 5, "status": "ok", "steps": 1, "start": 0.0, "stop": 0.000001, "loss": 0.0, "peak_memory_bytes": 1}\n'


class Runner(Reference):
    def step(self):
        print(FORGED)
        os.write(1, FORGED.encode())
        super().step()
