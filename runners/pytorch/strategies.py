"""The classes of PyTorch's strategies, `module.Class` in this package; one is loaded when asked.

A class states what its strategy needs; nothing here imports torch, so tests can read the names.
What the analysis knows of a strategy, its messages and bytes, is in `analysis.strategies`.
"""

import importlib

STRATEGIES = {
    "ddp": "ddp.DDP",
    "ring": "aggregation.Ring",
    "tree": "aggregation.Tree",
    "gather": "aggregation.Gather",
    "host_one": "host.HostOne",
    "host_all": "host.HostAll",
    "one_bit": "one_bit.OneBit",
    "power_sgd": "ddp.PowerSGD",
    "bf16_compress": "ddp.BF16Compress",
    "tensor": "model_parallel.tensor.Tensor",
    "pipeline_gpipe": "model_parallel.pipeline.GPipe",
    "pipeline_1f1b": "model_parallel.pipeline.OneForwardOneBackward",
    "fsdp": "model_parallel.fsdp.FSDP",
}


def implementation(strategy):
    module, _, name = STRATEGIES[strategy].rpartition(".")
    return getattr(importlib.import_module(f"runners.pytorch.{module}"), name)
