"""Paddle with both bias vectors of its LSTM trained, as it comes."""

from runners.paddle import runner
from runners.paddle.runner import Runner

__all__ = ["Runner"]

runner.trained = lambda model: dict(model.named_parameters())
