"""The ways to aggregate gradients, by the names that suites and configs/frameworks/pytorch.yaml use."""

from runners.protocol import Unsupported
from runners.pytorch import parallel
from runners.pytorch.aggregation import Aggregation, Gather, Ring, Tree
from runners.pytorch.ddp import DDP, BF16Compress, PowerSGD
from runners.pytorch.host import HostAll, HostOne
from runners.pytorch.one_bit import OneBit

AFTER_BACKWARD = {"ring": Ring, "tree": Tree, "gather": Gather, "host_one": HostOne, "host_all": HostAll, "one_bit": OneBit}
DURING_BACKWARD = {"ddp": DDP, "power_sgd": PowerSGD, "bf16_compress": BF16Compress}


def aggregated(model, task):
    """Return what to call in place of `model`, and the `Aggregation` that makes its ranks' gradients one."""
    if task.ranks == 1:
        return model, Aggregation()
    strategy = {**AFTER_BACKWARD, **DURING_BACKWARD}.get(task.strategy)
    if strategy is None:
        raise Unsupported(f"strategy '{task.strategy}': this runner has {', '.join([*DURING_BACKWARD, *AFTER_BACKWARD])}")
    if task.device == "cuda" and task.tuning == "tuned" and not strategy.capturable:
        raise Unsupported(f"strategy '{task.strategy}' waits on the host, which the CUDA graph of tuned cannot: use stock")
    if task.strategy in AFTER_BACKWARD:
        return model, strategy([parameter for parameter in model.parameters() if parameter.requires_grad], task)
    replica = parallel.replicate(model, task)
    return replica, strategy(replica)
