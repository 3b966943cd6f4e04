"""PyTorch's runner whose ranks look for one another at a port where nobody listens."""

import os

from runners import pytorch_parallel
from runners.pytorch_runner import Runner

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
pytorch_parallel.WAIT_SECONDS = 2

__all__ = ["Runner"]
