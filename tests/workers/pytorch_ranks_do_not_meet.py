"""PyTorch's runner whose rank 0 sends its first number, while rank 1 never sends any."""

import threading

from runners.pytorch import parallel
from runners.pytorch.runner import Runner as PyTorch

parallel.FIRST_SECONDS = 2


class Runner(PyTorch):
    def __init__(self, task):
        if task.rank == 1:
            parallel._meet = lambda device, task: threading.Event().wait()
        super().__init__(task)
