"""How `training` reads and writes PyTorch's state, and its faults in PyTorch's own code."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from runners.pytorch.layers import OneBiasLSTM
from runners.pytorch.runner import Runner
from tests.faults import planted
from tests.faults.pytorch import with_layer

# The axis of an LSTM's gates.
GATES = 0
CrossEntropyLoss, SGD = nn.CrossEntropyLoss, torch.optim.SGD


def read(runner):
    return {(kind, name): torch.zeros_like(parameter).cpu().numpy() if tensor is None
            else tensor.detach().cpu().numpy().copy()
            for name, parameter in runner._parameters().items()
            for kind, tensor in tensors_of(runner, parameter).items()}


def write(runner, values):
    """In place: a captured graph keeps its addresses. A first step makes the momentum."""
    parameters = runner._parameters()
    with torch.no_grad():
        for (kind, name), value in values.items():
            tensor = tensors_of(runner, parameters[name])[kind]
            if tensor is not None:
                tensor.copy_(torch.from_numpy(value))


def tensors_of(runner, parameter):
    momentum = runner.optimizer.state.get(parameter, {}).get("momentum_buffer")
    return {"parameter": parameter, "velocity": momentum}


class Scaled(SGD):
    """Takes the gradients times `factor`."""

    def __init__(self, parameters, factor, **options):
        super().__init__(parameters, **options)
        self.factor = factor

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(self.factor)
        return super().step(closure)


class OfSum(CrossEntropyLoss):
    """Reports the mean and gives the gradients of the sum."""

    def forward(self, logits, targets):
        mean = super().forward(logits, targets)
        return mean + (len(logits) - 1) * (mean - mean.detach())


class Aside(nn.Conv2d):
    """Pads two rows and columns at the top left in place of one on each side."""

    def forward(self, x):
        both = 2 * self.padding[0]
        return F.conv2d(F.pad(x, (both, 0, both, 0)), self.weight, self.bias, self.stride,
                        groups=self.groups)


def aside(layer, input_shape):
    a = layer["attributes"]
    return Aside(input_shape[0], a["filters"], a["kernel"], a["stride"], a["padding"],
                 groups=a["groups"], bias=a["bias"])


class Halves(OneBiasLSTM):
    """Sends no gradients from the second half of the words to the first."""

    def forward(self, x):
        first, second = x.split((x.shape[1] + 1) // 2, dim=1)
        zero = x.new_zeros(1, len(x), self.hidden_size)
        hidden, *state = self.cell(first, (zero, zero))
        return torch.cat([hidden, self.cell(second, [part.detach() for part in state])[0]], dim=1)

    def cell(self, x, state):
        return torch._VF.lstm(x, state, self._flat_weights, True, 1, 0.0, self.training, False,
                              True)


def halves(layer, input_shape):
    return Halves(input_shape[-1], layer["attributes"]["units"])


def with_optimizer(optimizer):
    return planted(Runner, torch.optim, SGD=optimizer)


def Gradients(number):
    return with_optimizer(partial(Scaled, factor=number / 100))


Nesterov = with_optimizer(partial(SGD, nesterov=True))
WeightDecay = with_optimizer(partial(SGD, weight_decay=1e-4))
LabelSmoothing = planted(Runner, nn,
                         CrossEntropyLoss=partial(CrossEntropyLoss, label_smoothing=0.1))
SumForMean = planted(Runner, nn, CrossEntropyLoss=OfSum)
PaddingAside = with_layer("conv2d", aside)
Truncated = with_layer("lstm", halves)
