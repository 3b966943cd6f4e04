"""Averages gradients by DistributedDataParallel, bucket by bucket while the backward pass runs.

A bucket (25 MiB; the first 1 MiB) goes through the library's all-reduce, or through a communication
hook that PyTorch ships. `bf16_compress` all-reduces half the bytes. `power_sgd` (T. Vogels et al.,
arXiv 1905.13727) all-reduces two matrices [o, 2] and [i, 2] of each [o, i], and vectors as they
are; what that loses is added to the next step's gradient.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from runners.protocol import Unsupported
from runners.pytorch.aggregation import Aggregation
from runners.pytorch.parallel import local_rank

# Rank of PowerSGD's matrices, as in its authors' ResNet-18; PyTorch recommends 1 to 4.
RANK = 2
# The fewest plain steps that the hook allows: DDP sorts its buckets in the first.
VANILLA_STEPS = 2
# PyTorch's remedy for columns of zeros, which occur in gradients because of ReLU.
EPSILON = 1e-8


class DDP(Aggregation):
    """Averages while the backward pass of its `replica` of the model runs."""

    sends_in_backward = True
    tuned_settings = ("DDP: gradient_as_bucket_view, static_graph, broadcast_buffers=False",)

    def __init__(self, replica):
        self.replica = replica

    @classmethod
    def around(cls, model, task):
        replica = replicate(model, task)
        return replica, cls(replica)

    def local(self):
        return self.replica.no_sync()

    def alone(self):
        """Return a function that all-reduces buckets like those of DDP's first step."""
        start, buckets = self.starter(), [Bucket(*each) for each in self._bucket_parameters()]

        def aggregate():
            for message in [start(bucket) for bucket in buckets]:
                message.wait()

        return aggregate

    def starter(self):
        """Return a function that starts a bucket's aggregation and returns what to wait for."""
        return lambda bucket: dist.all_reduce(bucket.buffer(), async_op=True)

    def _bucket_parameters(self):
        """Yield the number of each bucket, how many there are, and its parameters."""
        parameters = self.replica.module.parameters()
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # A text like "3 2, 1 0".
        text = self.replica._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices")
        if not text:
            raise Unsupported("DDP sorts its buckets in its first step: train one before asking "
                              "for the aggregation alone")
        buckets = [[trained[int(index)] for index in bucket.split()] for bucket in text.split(",")]
        for number, parameters in enumerate(buckets):
            yield number, len(buckets), parameters


class Hooked(DDP):
    """DDP whose buckets go through a hook with a state; `make_state` makes a fresh one."""

    def __init__(self, replica):
        super().__init__(replica)
        self.state = self.make_state()
        replica.register_comm_hook(self.state, self.hook)

    def starter(self):
        # A state of its own, because the training's state keeps errors.
        state = self.make_state()
        return lambda bucket: self.hook(state, bucket)


class BF16Compress(Hooked):
    """Rounds values to bf16, 8 bits, before the sum and at each addition."""

    @staticmethod
    def hook(state, bucket):
        """PyTorch's hook under another name: DDP refuses its own on CPUs, though gloo adds bf16."""
        return bf16_compress_hook(state, bucket)

    @staticmethod
    def make_state():
        return None


class PowerSGD(Hooked):
    """Sends the nearest matrix of rank 2, found step by step from the one before."""

    capturable = False

    @staticmethod
    def hook(state, bucket):
        """PyTorch's hook, on CPUs a bucket at a time.

        Gloo's threads start its second and third sum in an order of their own on each rank, and
        sums of different buckets met (FCN-5 on two ranks, torch 2.13: "Received data size doesn't
        match expected size").
        """
        sent = powerSGD_hook(state, bucket)
        if not bucket.buffer().is_cuda:
            sent.wait()
        return sent

    @staticmethod
    def make_state():
        return PowerSGDState(None, matrix_approximation_rank=RANK,
                             start_powerSGD_iter=VANILLA_STEPS, orthogonalization_epsilon=EPSILON)

    def reset(self):
        self.state.iter = 0
        for memory in (self.state.error_dict, self.state.p_memory_dict, self.state.q_memory_dict):
            memory.clear()


class Bucket:
    """Zeros in place of a bucket of gradients, with what the hooks ask of a `GradBucket`."""

    def __init__(self, number, count, parameters):
        self.number, self.count = number, count
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes), device=parameters[0].device)
        self.views = [part.view(parameter.shape) for part, parameter
                      in zip(self.flat.split(sizes), parameters, strict=True)]

    def index(self):
        return self.number

    def is_last(self):
        return self.number == self.count - 1

    def buffer(self):
        return self.flat

    def gradients(self):
        return self.views


def replicate(model, task):
    """Wrap a model in DDP; `tuned` turns on what DDP's documentation offers for speed."""
    options = {}
    on_gpu = task.device == "cuda"
    if task.tuning == "tuned":
        # Batch norm's running averages take no part in training, so no rank sends them. A static
        # graph must aggregate in its first step, and the check of a lossy strategy begins with a
        # step that does not (torch 2.13); on GPUs a capture's warm-up comes first.
        options = {"gradient_as_bucket_view": True, "broadcast_buffers": False,
                   "static_graph": on_gpu or task.strategy == "ddp"}
    # PyTorch's notes on CUDA graphs want DDP made on a side stream.
    captured = on_gpu and task.tuning == "tuned"
    with torch.cuda.stream(torch.cuda.Stream()) if captured else contextlib.nullcontext():
        replica = DistributedDataParallel(model, **options,
                                          device_ids=[local_rank(task)] if on_gpu else None)
    if captured:
        torch.cuda.synchronize()
    return replica
