"""Lets PyTorch's strategies average known gradients and compares the answers with the mean."""

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

from runners.protocol import Task
from runners.pytorch import parallel

SHAPES = [(37, 53), (3,), (8, 4, 3, 3), (1500,), (64, 96)]


def session():
    return Session()


class Dot(nn.Module):
    """The sum of parameters times given arrays, which are their gradients; one is channels-last."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in SHAPES)
        self.to(memory_format=torch.channels_last)

    def forward(self, *arrays):
        pairs = zip(self.weights, arrays, strict=True)
        return sum((weight * array).sum() for weight, array in pairs)


class Session:
    def hello(self):
        return {}

    def aggregate(self, strategy, ranks, steps, constant=False, forget=False):
        """Aggregate for some steps: one gradient if `constant`, without error feedback if `forget`.

        Errors are L2 norms relative to the last exact mean's: `error` of the last step's answer,
        `drift` of the sum of all answers, `unexplained` of what the errors that one_bit keeps leave
        of that. `hash` is of the last answer.
        """
        rank = int(os.environ["RANK"])
        task = Task(None, None, devices=ranks, ranks=ranks, rank=rank, strategy=strategy)
        parallel.join(task)
        model = Dot()
        replica, aggregation = parallel.aggregated(model, task)
        drift = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
        for step in range(steps):
            everybody = [gradients_of(each, 0 if constant else step) for each in range(ranks)]
            model.zero_grad()
            replica(*everybody[rank]).backward()
            aggregation.aggregate()
            if forget:
                no_feedback(strategy, aggregation)
            answers = [weight.grad.detach().double().clone() for weight in model.weights]
            means = [torch.stack(each).double().mean(0) for each in zip(*everybody, strict=True)]
            drift = [sum_ + mean - answer
                     for sum_, mean, answer in zip(drift, means, answers, strict=True)]
        kept = kept_errors(strategy, aggregation)
        unexplained = [sum_ - each for sum_, each in zip(drift, kept, strict=True)]
        size = norm(means)
        error = norm([a - b for a, b in zip(answers, means, strict=True)])
        return {"error": error / size, "drift": norm(drift) / size,
                "unexplained": norm(unexplained) / size, "hash": digest(answers)}

    def close(self):
        return {}


def gradients_of(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def no_feedback(strategy, aggregation):
    if strategy == "one_bit":
        aggregation.reset()
    else:
        aggregation.state.use_error_feedback = False


def kept_errors(strategy, aggregation):
    """What one_bit still owes, of all ranks' gradients and of all parts of the mean."""
    if strategy != "one_bit":
        return [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    kept = aggregation.errors / aggregation.ranks
    kept[aggregation.rank] += aggregation.mean_errors
    dist.all_reduce(kept)
    return [kept.as_strided(view.shape, view.stride(), view.storage_offset()).double()
            for view in aggregation.views]


def norm(arrays):
    return torch.stack([array.square().sum() for array in arrays]).sum().sqrt().item()


def digest(arrays):
    words = (array.float().contiguous().numpy().tobytes() for array in arrays)
    return hashlib.sha256(b"".join(words)).hexdigest()
