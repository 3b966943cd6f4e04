"""Do all devices of a trial hold the same parameters? Asked after its check and after its timed windows.

Every device starts from the same weights and applies the same aggregated gradients, so one that differs in a single bit has missed
an update, applied one of its own, or aggregated otherwise than the others.
"""

from collections import Counter

from harness.worker import Worker


def fault(worker: Worker, devices: int, limit: float) -> str:
    """Say which devices hold other parameters than most; empty where all hold the same."""
    hashes = worker.ask("copies", limit)["hashes"]
    if len(hashes) != devices:
        return f"{len(hashes)} copies of the parameters were answered for {devices} devices"
    common, _ = Counter(hashes).most_common(1)[0]
    strays = [str(device) for device, each in enumerate(hashes) if each != common]
    if not strays:
        return ""
    return f"the devices' parameters have come apart: device {', '.join(strays)} of {devices} holds others than the rest"
