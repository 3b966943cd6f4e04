"""The nodes of the Slurm allocation that this process runs in, and the address they reach it by."""

import os
import socket
import subprocess
from collections.abc import Sequence
from functools import cache

from harness.errors import WrongUse

# Any port: nothing is sent, the kernel only chooses the interface that leads there.
ANY_PORT = 9
STEP = ("srun", "--overlap", "--kill-on-bad-exit=1", "--cpu-bind=none", "--unbuffered")


def nodes() -> list[str]:
    """Return the names of the allocation's nodes, the first one drives; empty outside of one."""
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    return _asked("hostnames", listed).split() if listed else []


def addresses(count: int) -> list[str]:
    """Return the addresses of the first `count` nodes, as they reach one another.

    A node's own name may be 127.0.1.1 in its own hosts file, so the first one's address is that of
    the interface that leads to the second.
    """
    found = [_address(name) for name in nodes()[:count]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((found[-1], ANY_PORT))
        return [probe.getsockname()[0], *found[1:]]


def step(count: int) -> list[str]:
    """Return the words that start one process on each of the first `count` nodes."""
    return step_on(nodes()[:count])


def step_on(names: Sequence[str]) -> list[str]:
    """Return the words that start one process on each of these nodes."""
    count = len(names)
    return [*STEP, f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1",
            f"--nodelist={','.join(names)}"]


def free_port(address: str) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _address(name: str) -> str:
    words = dict(word.partition("=")[::2] for word in _asked("node", name, "-o").split())
    return socket.gethostbyname(words.get("NodeAddr", name))


@cache
def _asked(*what: str) -> str:
    try:
        return subprocess.run(["scontrol", "show", *what], capture_output=True, text=True,
                              timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise WrongUse(f"scontrol show {' '.join(what)}: {error}; SLURM_JOB_NODELIST says that "
                       "this is an allocation of Slurm") from None
