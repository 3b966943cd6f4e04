"""The worker's side of a study: the same wire and the same clock as training, for single operations in place of networks.

A point is what is computed (a product's shape, a layer); its candidates are the ways to compute it. A study's module offers a
`Bench` and `session()`. As in training, the driver decides how often; nothing here loops over anything but what it was sent.
"""

import os
import sys
import traceback

import numpy as np

from runners.protocol import Runner, Task, Unsupported, timed_run


class Candidate:
    """One way to compute a point. `step()` computes it `operations` times and may return early; `synchronize()` waits for the
    device. `error` is its relative L2 error against float64 where the bench knows it, and `facts` what else it says of itself."""

    barrier = Runner.barrier  # of one process: nothing to wait for

    def __init__(self, step, synchronize, operations=1, error=None, **facts):
        self.step = step
        self.synchronize = synchronize
        self.operations = operations
        self.error = error
        self.facts = facts


class Bench:
    """What a study's module offers: it is made with a `Task` without network, and describes itself like a `Runner`."""

    @staticmethod
    def describe():
        return {}

    def __init__(self, task):
        self.task = task

    def candidates(self, point):
        """Yield (name, function) for each candidate of `point` (a dict). Called without arguments, the function returns its
        `Candidate`, having run it once, or raises `Unsupported`. Operands of the point before are free by now."""
        raise NotImplementedError


class StudySession:
    """The commands of a study, one method each."""

    def __init__(self, bench_class):
        self.bench_class = bench_class
        self.bench = None
        self.placed = {}

    def hello(self):
        versions = {"python": sys.version.split()[0], "numpy": np.__version__, "pid": os.getpid()}
        versions.update(self.bench_class.describe())
        return versions

    def open(self, **task):
        self.bench = self.bench_class(Task(None, None, **task))
        return {}

    def place(self, point):
        """Make a point's operands and candidates ready; for each a status, and why it is not `ok`."""
        self.placed.clear()
        answers = {}
        for name, make in self.bench.candidates(point):
            answers[name] = {"status": "ok", "reason": ""}
            try:
                candidate = self.placed[name] = make()
                answers[name].update(candidate.facts, operations=candidate.operations, error=candidate.error)
            except Unsupported as refusal:
                answers[name].update(status="unsupported", reason=str(refusal))
            except Exception as failure:  # one way that fails must not cost the others
                traceback.print_exc()
                answers[name].update(status="failed", reason=first_line(failure))
        return {"candidates": answers}

    def time(self, runs):
        """The (start, stop) of each of `runs`: pairs of a candidate's name and a number of steps, in their order."""
        return {"windows": [timed_run(self.placed[name], steps) for name, steps in runs]}

    def close(self):
        self.placed.clear()
        self.bench = None
        return {}


def relative_error(computed, exact):
    """L2 norm of the difference over the L2 norm of what is exact, as a float; of arrays of one framework or of NumPy."""
    difference = (computed - exact).reshape(-1)
    exact = exact.reshape(-1)
    return float(((difference * difference).sum() / (exact * exact).sum()) ** 0.5)


def first_line(error):
    return "{}: {}".format(type(error).__name__, (str(error).strip() or "no message").splitlines()[0][:200])
