"""Do all devices of a trial hold the same parameters? Asked after its check and after its timed windows.

Every device starts from the same weights and applies the same aggregated gradients, so one that differs in a single bit has missed
an update, applied one of its own, aggregated otherwise than the others, or added the same numbers in another order. The last is
rounding and no fault. A process that holds several copies itself can tell by how much they differ; ranks in processes of their own
cannot see each other, so of theirs every bit must be equal.
"""

import math
from collections import Counter
from dataclasses import dataclass

from analysis.proof.tolerances import COPIES, STORED_UNITS
from harness.workers.worker import Worker


@dataclass(frozen=True)
class Comparison:
    """What is wrong with the copies, empty where nothing is, and their largest difference as a share of what training changed: NaN
    where all bits are equal or nobody can tell."""

    fault: str = ""
    error: float = math.nan


def compare(worker: Worker, devices: int, limit: float) -> Comparison:
    """Compare the copies on all devices; where they differ by more than rounding name devices and the worst parameter."""
    answer = worker.ask("copies", limit, units=STORED_UNITS)
    hashes, apart = answer["hashes"], answer.get("apart", {})
    if len(hashes) != devices:
        return Comparison(f"{len(hashes)} copies of the parameters were answered for {devices} devices")
    common, _ = Counter(hashes).most_common(1)[0]
    strays = [str(device) for device, each in enumerate(hashes) if each != common]
    if not strays:
        return Comparison()
    fault = f"the devices' parameters have come apart: device {', '.join(strays)} of {devices} holds others than the rest"
    if not apart:
        return Comparison(fault)
    error = max(parameter["share"] for parameter in apart.values())
    worst = max(apart, key=lambda name: apart[name]["beyond"])
    if apart[worst]["beyond"] <= COPIES:
        return Comparison(error=error)
    return Comparison(f"{fault}; parameters that differ: {len(apart)}, most of all {worst}, by {apart[worst]['share']:.2g} of what "
                      f"training changed (allowed {COPIES:.0e})", error)
