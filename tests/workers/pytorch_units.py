"""PyTorch's runner whose copies are compared by the units that a layer of dropout keeps, in place of its parameters."""

import torch

from runners.pytorch.runner import Runner as PyTorch


class Runner(PyTorch):
    def parameters(self):
        return {"units": torch.nn.functional.dropout(torch.ones(100), 0.5).numpy()}
