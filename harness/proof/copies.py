"""Do all devices of a trial hold the same parameters, after its check and after its windows?

Every device starts from the same weights and applies the same aggregated gradients. One that
differs in a bit has missed an update, applied its own, aggregated differently, or added the same
numbers in another order. The last is rounding and no fault. A process that holds several copies can
tell by how much they differ; ranks cannot see each other, so all their bits must be equal.
"""

import math
from collections import Counter
from dataclasses import dataclass

from analysis.proof.tolerances import COPIES, STORED_UNITS
from harness.workers.worker import Worker


@dataclass(frozen=True)
class Comparison:
    """What is wrong with the copies, if anything, and their largest difference.

    The difference is a share of what training changed; NaN if all bits are equal or it is unknown.
    """

    fault: str = ""
    error: float = math.nan


def compare(worker: Worker, devices: int, limit: float) -> Comparison:
    """Compare the copies on all devices; beyond rounding, name devices and the worst parameter."""
    answer = worker.ask("copies", limit, units=STORED_UNITS)
    hashes, apart = answer["hashes"], answer.get("apart", {})
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
        return Comparison(fault)
    error = max(parameter["share"] for parameter in apart.values())
    worst = max(apart, key=lambda name: apart[name]["beyond"])
    if apart[worst]["beyond"] <= COPIES:
        return Comparison(error=error)
    share = apart[worst]["share"]
    return Comparison(f"{fault}; parameters that differ: {len(apart)}, most of all {worst}, "
                      f"by {share:.2g} of what training changed (allowed {COPIES:.0e})", error)
