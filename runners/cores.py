"""The processors that a worker is pinned to, and the variables that limit a library's threads."""

import os
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores(threads, root=Path("/"), allowed=None):
    """Choose `threads` logical processors: one of each core, socket by socket, then siblings.

    Only processors in `allowed` are chosen, by default those that this process may use. The list is
    shorter than `threads` if there are too few. `root` is the folder that holds `sys`.
    """
    allowed = os.sched_getaffinity(0) if allowed is None else allowed
    taken = {}
    order = []
    for processor in sorted(allowed):
        topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
        siblings = processors_of(text_of(topology / "thread_siblings_list")) or (processor,)
        place = taken[siblings] = taken.get(siblings, -1) + 1
        order.append((place, int(text_of(topology / "physical_package_id") or 0), processor))
    return [processor for _, _, processor in sorted(order)][:threads]


def share_of(rank, ranks, threads, allowed=None):
    """Return the cores of one of the `ranks` on a machine, `threads` each.

    Ranks share cores if there are too few.
    """
    chosen = cores(threads * ranks, allowed=allowed)
    return [chosen[(rank * threads + thread) % len(chosen)]
            for thread in range(min(threads, len(chosen)))]


def pin(cores_named, rank=0):
    """Keep this process on its cores, before a framework counts them.

    "0,1;2,3" names those of two ranks. "2x4" lets each of two ranks a node choose four of those
    that its own node allows, since the driver sees only its own.
    """
    if not cores_named or not hasattr(os, "sched_setaffinity"):
        return
    if "x" in cores_named:
        ranks, threads = map(int, cores_named.split("x"))
        own = share_of(rank % ranks, ranks, threads)
    else:
        own = map(int, cores_named.split(";")[rank].split(","))
    os.sched_setaffinity(0, set(own))


def processors_of(text):
    """Read the kernel's list format: "0-2,8" is (0, 1, 2, 8)."""
    found = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def text_of(path):
    """Return the content of a file of the kernel, None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
