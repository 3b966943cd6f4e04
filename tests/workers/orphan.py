"""Leaves a child in a session of its own that keeps the pipe of answers open, then dies."""

import os
import threading

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def step(self):
        if os.fork() == 0:
            os.setsid()
            threading.Event().wait()
        os._exit(3)
