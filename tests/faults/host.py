"""A worker that serves one runner after another, so that many tests share a framework's import."""

import gc
import importlib

import numpy as np

from runners.session import Session
from runners.wire import own_rank
from tests.faults import uproot


def session():
    return Host(None, own_rank())


class Host(Session):
    def host(self, name):
        """Take the runner `name`, a module or `module:Class`, in the place of the last one."""
        if self.runner_class:
            self.rest()
        uproot()
        module, _, runner = name.partition(":")
        self.runner_class = getattr(importlib.import_module(module), runner or "Runner")
        if hasattr(gc, "freeze"):
            gc.freeze()  # a framework's own objects need no search each time a network goes
        return {}

    def statistics(self, out):
        """Save the running statistics of rank 0."""
        if self.rank == 0:
            np.savez(out, **self.runner.statistics())
        return {}
