"""What a worker's process has used: the peak of its memory, and its node's network.

Python 3.5 syntax, because old frameworks load this file.
"""

import glob
import os
import resource
import sys


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
