"""PyTorch's runner with a communication hook that adds gradients up and does not average them."""

import torch.distributed as dist

from runners.pytorch.runner import Runner as PyTorch


class Runner(PyTorch):
    def __init__(self, task):
        super().__init__(task)
        self.replica.register_comm_hook(None, add_up)


def add_up(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
