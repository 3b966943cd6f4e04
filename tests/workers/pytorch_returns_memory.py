"""PyTorch as if CUDA had been used: its log says, each time the cached memory is emptied, how many models are still there."""

import gc
import sys
from unittest import mock

import torch

from runners.pytorch.runner import Net
from runners.pytorch.runner import Runner as Correct


class Runner(Correct):
    @staticmethod
    def return_memory():
        with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, empty_cache=count_models):
            Correct.return_memory()


def count_models():
    sys.stderr.write(f"emptied beside {sum(isinstance(each, Net) for each in gc.get_objects())} models\n")
