"""Writes something that is not JSON on the private descriptor."""

import os

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def step(self):
        for descriptor in range(3, 20):
            try:
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                    os.write(descriptor, b"I am not JSON\n")
            except OSError:
                continue
        super().step()
