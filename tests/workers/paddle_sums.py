"""Paddle whose ranks add their gradients up by hand, and do not divide: `all_reduce` is a sum."""

import paddle

from runners.paddle.runner import Runner as Correct

paddle.DataParallel = lambda layer: layer


class Runner(Correct):
    def _backward(self, mean_loss, batch):
        loss = super()._backward(mean_loss, batch)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                paddle.distributed.all_reduce(parameter.grad)
        return loss
