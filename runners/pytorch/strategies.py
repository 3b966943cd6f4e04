"""The facts about each way in which PyTorch's ranks train together.

Nothing here imports torch, so the driver and tests can read it. The algorithms are in the modules
that `implementation` names. S is the bytes of all gradients, n the number of devices.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """What one strategy does; `sent_share` is the share of each gradient byte that it sends."""

    name: str
    # module.Class in runners.pytorch
    implementation: str
    # but for rounding of the sum
    exact: bool = True
    # aggregates once all gradients are there, not bucket by bucket meanwhile
    after_backward: bool = False
    # fits in a CUDA graph: the host neither waits nor computes in between
    capturable: bool = True
    # gradients meet in the host's memory, not on the wire between devices
    on_host: bool = False
    # None: depends on each parameter's shape
    sent_share: float | None = 1.0
    device_kinds: tuple[str, ...] = ("cpu", "cuda")
    # what each device holds a part of beside the batch, if not all: "products", "layers", "state"
    divides: str = ""


BLOCK = 1024
# one_bit sends each block of 4096 bytes as 128 bytes of signs and two float32 means.
ONE_BIT = (BLOCK // 8 + 8) / (4 * BLOCK)
STRATEGIES = {strategy.name: strategy for strategy in (
    Strategy("ddp", "ddp.DDP"),
    Strategy("ring", "aggregation.Ring", after_backward=True),
    Strategy("tree", "aggregation.Tree", after_backward=True),
    Strategy("gather", "aggregation.Gather", after_backward=True),
    Strategy("host_one", "host.HostOne", after_backward=True, capturable=False, on_host=True),
    Strategy("host_all", "host.HostAll", after_backward=True, capturable=False, on_host=True),
    Strategy("one_bit", "one_bit.OneBit", exact=False, after_backward=True, sent_share=ONE_BIT),
    Strategy("power_sgd", "ddp.PowerSGD", exact=False, capturable=False, sent_share=None),
    Strategy("bf16_compress", "ddp.BF16Compress", exact=False, sent_share=1 / 2),
    Strategy("tensor", "model_parallel.tensor.Tensor", capturable=False, sent_share=None,
             divides="products"),
    Strategy("pipeline_gpipe", "model_parallel.pipeline.GPipe", capturable=False, sent_share=None,
             divides="layers"),
    Strategy("pipeline_1f1b", "model_parallel.pipeline.OneForwardOneBackward", capturable=False,
             sent_share=None, divides="layers"),
    Strategy("fsdp", "model_parallel.fsdp.FSDP", capturable=False, sent_share=None,
             divides="state"),
)}
