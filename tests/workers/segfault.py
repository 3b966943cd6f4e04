"""Dies of a segmentation fault in its first step, as a broken native library does."""

import os
import signal
import sys

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def step(self):
        sys.stderr.write("about to read address 0\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
