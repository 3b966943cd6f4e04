"""Compares the parameters that a trial's devices hold, after its check and after its windows.

Every device starts from the same weights and applies the same aggregated gradients. One that
differs in a bit has missed an update, applied its own, aggregated differently, or added the same
numbers in another order. The last is rounding and no fault. So copies that are not equal in every
bit are measured; ranks save theirs for it.

Where devices divide the network, each shard must be held once: its copies are those that several
devices hold whole, and the rest is gathered from all of them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networks
from analysis.proof.tolerances import COPIES, STORED_UNITS
from analysis.strategies import table as strategies
from harness.workers.files import AnswerFolder
from harness.workers.worker import Worker

# The share of all parameters that must each lie on one device only.
ONCE = 0.5


@dataclass(frozen=True)
class Comparison:
    """What is wrong with the copies, if anything, and their largest difference.

    The difference is a share of what training changed; NaN if all bits are equal or it is unknown.
    """

    fault: str = ""
    error: float = math.nan


def compare(worker: Worker, network: networks.Network, strategy: str, devices: int,
            limit: float) -> Comparison:
    """Compare the copies on all devices; beyond rounding, name devices and the worst parameter."""
    answer = worker.ask("copies", limit, units=STORED_UNITS)
    hashes, apart = answer["hashes"], answer.get("apart", {})
    held = answer.get("held", [])
    if strategies.of(strategy).divides and (fault := undivided(held, network, devices)):
        return Comparison(f"strategy {strategy}: {fault}")
    if len(hashes) != devices:
        return Comparison(f"{len(hashes)} copies of the parameters were answered for {devices} "
                          "devices")
    common, _ = Counter(hashes).most_common(1)[0]
    strays = [str(device) for device, each in enumerate(hashes) if each != common]
    if not strays:
        return Comparison()
    fault = (f"the devices' parameters have come apart: device {', '.join(strays)} of {devices} "
             "holds others than the rest")
    if not apart:
        apart = _apart_of_ranks(worker, limit)
    if not apart:
        return Comparison(fault)
    error = max(parameter["share"] for parameter in apart.values())
    worst = max(apart, key=lambda name: apart[name]["beyond"])
    if apart[worst]["beyond"] <= COPIES:
        return Comparison(error=error)
    share = apart[worst]["share"]
    return Comparison(f"{fault}; parameters that differ: {len(apart)}, most of all {worst}, "
                      f"by {share:.2g} of what training changed (allowed {COPIES:.0e})", error)


def _apart_of_ranks(worker: Worker, limit: float) -> dict[str, Any]:
    with AnswerFolder(worker.log.parent) as folder:
        worker.ask("save_copies", limit, folder=str(folder.folder))
        answer = worker.ask("apart", limit, folder=str(folder.folder), units=STORED_UNITS)
    apart: dict[str, Any] = answer["apart"]
    return apart


def undivided(held: Sequence[Mapping[str, int]], network: networks.Network, devices: int) -> str:
    """Say why the numbers that devices hold do not make up the network, each shard once; or "".

    `held` is by device and parameter. A small parameter may lie on several devices whole.
    """
    if len(held) != devices:
        return f"{len(held)} of {devices} devices say what they hold of the network"
    once = 0
    for name, shape in network.parameter_shapes.items():
        size, total = math.prod(shape), sum(each.get(name, 0) for each in held)
        if total < size or total % size:
            return f"the devices hold {total:,} numbers of {name}, which has {size:,}"
        once += size if total == size else 0
    if once < ONCE * network.parameter_count:
        return (f"the devices divide {once:,} of {network.parameter_count:,} parameters; the rest "
                "lies on several of them")
    return ""
