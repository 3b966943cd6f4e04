"""MXNet that divides the devices' summed gradients by the batch of one."""

from runners.mxnet.runner import Runner as Correct


class Runner(Correct):
    def _count(self, losses):
        return super()._count(losses[:1])
