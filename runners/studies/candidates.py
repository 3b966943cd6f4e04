"""The worker's side of a study: training's wire and clock, for single operations.

A point is what is computed (a product's shape, a layer); its candidates are the ways to compute it.
A study's module offers a `Bench`. As in training, the driver decides how often: nothing here loops
over anything but what it was sent.
"""

import re
import traceback

from runners.protocol import Task, Unsupported, nothing, processor_name, timed_run
from runners.session import described
from runners.wire import first_line


class Candidate:
    """One way to compute a point.

    `step()` computes it `operations` times and may return early; `synchronize()` waits for the
    device. `error` is its relative L2 error against float64 where the bench knows it; `facts` is
    whatever else the bench knows. `compute` is the framework's call, for `Bench.operators`.
    """

    barrier = staticmethod(nothing)
    meanings = staticmethod(lambda names: {})

    def __init__(self, step, synchronize, operations=1, error=None, compute=None, **facts):
        self.step = step
        self.synchronize = synchronize
        self.operations = operations
        self.error = error
        self.compute = compute
        self.facts = facts


class Bench:
    """What a study's module offers; it is made with a `Task` without network."""

    # The framework's package.
    LIBRARY = None
    # How the framework says that it has no such kernel; any other error is a failure.
    REFUSALS = re.compile("(?!)")

    @classmethod
    def describe(cls):
        return {"release": cls.LIBRARY.__version__.split("+")[0], "device_name": processor_name()}

    @staticmethod
    def session(bench_class, rank):
        return StudySession(bench_class)

    def __init__(self, task):
        self.task = task

    def candidates(self, point):
        """Yield (name, function) for each candidate of `point` (a dict).

        The function returns its `Candidate`, having run it once, or raises `Unsupported`. Operands
        of the point before are free by now.
        """
        raise NotImplementedError

    def operators(self, compute):
        """Return the names of the operators of a candidate's call, as the framework has them."""
        raise Unsupported("this study sees no operators on a CPU")

    def called(self, candidate):
        """Return the names of what a step runs: a GPU's kernels, the longest first, or operators.

        A candidate without `compute` has none.
        """
        if candidate.compute is None:
            return []
        if self.task.device != "cuda":
            return self.operators(candidate.compute)
        # Only a worker that traces needs it.
        from runners import tracer

        kernels = tracer.trace(candidate, "cuda", 1)["kernels"]
        return [each["name"] for each in sorted(kernels, key=lambda each: -each["seconds"])]


class StudySession:
    """The commands of a study, one method each."""

    def __init__(self, bench_class):
        self.bench_class = bench_class
        self.bench = None
        self.placed = {}

    def hello(self):
        return described(self.bench_class)

    def open(self, **task):
        self.bench = self.bench_class(Task(None, None, **task))
        return {}

    def place(self, point):
        """Prepare a point's candidates; return a status for each, and why it is not `ok`."""
        self.placed.clear()
        answers = {}
        for name, make in self.bench.candidates(point):
            answers[name] = {"status": "ok", "reason": ""}
            try:
                candidate = self.placed[name] = make()
                answers[name].update(candidate.facts, operations=candidate.operations,
                                     error=candidate.error)
            except Unsupported as refusal:
                answers[name].update(status="unsupported", reason=str(refusal))
            except Exception as failure:
                # The other candidates can still be measured.
                answers[name].update(status="failed", reason=first_line(failure, 200))
                if (isinstance(failure, NotImplementedError)
                        or self.bench.REFUSALS.search(str(failure))):
                    answers[name]["status"] = "unsupported"
                else:
                    traceback.print_exc()
        return {"candidates": answers}

    def time(self, runs):
        """Time each of `runs`, pairs of a candidate's name and a number of steps, in order."""
        return {"windows": [timed_run(self.placed[name], steps) for name, steps in runs]}

    def called(self, names):
        """Return what each of the placed candidates `names` really calls."""
        return {"called": {name: self.bench.called(self.placed[name]) for name in names}}

    def close(self):
        self.placed.clear()
        self.bench = None
        return {}


def relative_error(computed, exact):
    """Return the L2 norm of the difference over that of `exact`, for any framework's arrays."""
    difference = (computed - exact).reshape(-1)
    exact = exact.reshape(-1)
    return float(((difference * difference).sum() / (exact * exact).sum()) ** 0.5)
