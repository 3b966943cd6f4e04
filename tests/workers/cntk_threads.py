"""CNTK that refuses the task with the number of threads that its OpenMP library has been given."""

import ctypes

from runners.cntk.runner import Runner as Correct
from runners.protocol import Unsupported


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        raise Unsupported(f"{ctypes.CDLL('libiomp5.so').omp_get_max_threads()} threads")
