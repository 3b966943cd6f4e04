"""A worker's resources: the processors it is pinned to, the memory and the network it has used.

Python 3.5 syntax, because old frameworks load this file.
"""

import glob
import os
import resource
import sys
from pathlib import Path

# They limit a library's threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def peak_resident_bytes():
    """Return the peak resident set since the last reset, or since the start without /proc."""
    try:
        with open("/proc/self/status") as status:
            lines = [line for line in status if line.startswith("VmHWM")]
        return int(lines[0].split()[1]) * 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak_memory():
    """Start the peak again from the present resident set (Linux: proc(5), clear_refs 5)."""
    try:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
    except OSError:
        sys.stderr.write("peak memory counts from the start of the process: "
                         "/proc/self/clear_refs is not writable\n")


def sent_by_node(task):
    """Return the bytes that this node's network has sent; None where one node trains.

    The first rank of a node answers for it, the others say 0.
    """
    nodes = os.environ.get("DLBENCH_NODES", "").split(",")
    if len(nodes) < 2:
        return None
    return 0 if task.rank % max(1, task.ranks // len(nodes)) else sent_bytes()


def sent_bytes(path="/proc/self/net/dev", ports="/sys/class/infiniband"):
    """Return the bytes sent by all interfaces but the loopback, and by InfiniBand's ports."""
    total = 0
    with open(path) as file:
        for line in file:
            name, colon, counts = line.partition(":")
            if colon and name.strip() != "lo":
                total += int(counts.split()[8])
    for port in glob.glob(os.path.join(ports, "*", "ports", "*", "counters", "port_xmit_data")):
        with open(port) as file:
            # It counts words of four bytes.
            total += 4 * int(file.read())
    return total


def cores(threads, root=Path("/"), allowed=None):
    """Choose `threads` logical processors: one of each core, socket by socket, then siblings.

    Only processors in `allowed` are chosen, by default those that this process may use. The list is
    shorter than `threads` if there are too few. `root` is the folder that holds `sys`.
    """
    allowed = os.sched_getaffinity(0) if allowed is None else allowed
    taken = {}
    order = []
    for processor in sorted(allowed):
        topology = root / "sys/devices/system/cpu/cpu{}/topology".format(processor)
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
