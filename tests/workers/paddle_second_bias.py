"""Paddle with both bias vectors of its LSTM trained, as it comes."""

from runners import paddle_runner
from runners.paddle_runner import Runner

__all__ = ["Runner"]

paddle_runner.trained = lambda model: dict(model.named_parameters())
