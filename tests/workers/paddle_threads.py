"""Paddle that tells, in place of an answer, how many threads OpenMP gives to each of two of its own threads."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import paddle

from runners.paddle.runner import Runner as Correct
from runners.protocol import Unsupported


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        count = ctypes.CDLL(os.path.join(paddle.sysconfig.get_lib(), "libiomp5.so")).omp_get_max_threads
        with ThreadPoolExecutor(1) as other:
            raise Unsupported(f"OpenMP gives {count()} threads here and {other.submit(count).result()} elsewhere")
