"""PyTorch's runner whose rank 1 is killed after forty steps, while it is timed, as by an operator or by the kernel."""

import os
import signal

from runners.pytorch.runner import Runner as PyTorch


class Runner(PyTorch):
    trained = 0

    def step(self):
        self.trained += 1
        if self.task.rank == 1 and self.trained > 40:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step()
