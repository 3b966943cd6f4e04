"""Paddle with Nesterov's momentum, as Torch's DLBench scripts had it."""

import functools

import paddle

from runners.paddle.runner import Runner

__all__ = ["Runner"]

paddle.optimizer.Momentum = functools.partial(paddle.optimizer.Momentum, use_nesterov=True)
