"""Writes 200 kB to stderr and as much to stdout in each step."""

import sys

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def step(self):
        sys.stderr.write("noise of a framework\n" * 10000)
        sys.stdout.write("noise of a framework\n" * 10000)
        super().step()
