"""Caffe that refuses every task with the number of threads that OpenBLAS has once the runner is built."""

from runners.caffe.runner import Runner as Correct
from runners.caffe.runner import openblas
from runners.protocol import Unsupported


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        raise Unsupported(f"OpenBLAS has {openblas().openblas_get_num_threads()} threads")
