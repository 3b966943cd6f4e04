"""The processors that a worker is pinned to, and the variables that limit a library's threads."""

import os
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores(threads: int, root: Path = Path("/"), allowed: set[int] | None = None) -> list[int]:
    """Choose `threads` logical processors: one of each core, socket by socket, then siblings.

    Only processors in `allowed` are chosen, by default those that this process may use. The list is
    shorter than `threads` if there are too few. `root` is the folder that holds `sys`.
    """
    allowed = os.sched_getaffinity(0) if allowed is None else allowed
    taken: dict[tuple[int, ...], int] = {}
    order = []
    for processor in sorted(allowed):
        topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
        siblings = processors_of(text_of(topology / "thread_siblings_list")) or (processor,)
        rank = taken[siblings] = taken.get(siblings, -1) + 1
        order.append((rank, int(text_of(topology / "physical_package_id") or 0), processor))
    return [processor for _, _, processor in sorted(order)][:threads]


def processors_of(text: str | None) -> tuple[int, ...]:
    """Read the kernel's list format: "0-2,8" is (0, 1, 2, 8)."""
    found: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def text_of(path: Path) -> str | None:
    """Return the content of a file of the kernel, None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
