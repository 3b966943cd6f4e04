"""Caffe whose solver outlives new weights, with the momentum of two steps that were taken before."""

from tests.workers.caffe_reloads import Runner as Reloads


class Runner(Reloads):
    def _make_solver(self):
        if not getattr(self, "solver", None):
            super()._make_solver()
