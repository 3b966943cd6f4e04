"""Lets every node of a job run the whole campaign, and joins their records.

`python -m harness.cluster.repeat run SUITE --out DIR` runs in the job. Node NAME measures into
DIR.nodes/NAME and goes on with what is there.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.cluster import allocation
from harness.cluster.options import folder_of_node, folders_of_nodes

DRIVER = (sys.executable, "-m", "harness.start")
RESUME = "--resume"


def here(words: list[str]) -> list[str]:
    """Return the command of this node's campaign."""
    place = words.index("--out") + 1
    own = folder_of_node(Path(words[place]), os.environ["SLURMD_NODENAME"])
    resume = [RESUME] if (own / "campaign.json").is_file() else []
    return [*DRIVER, *words[:place], str(own), *words[place + 1:], *resume]


def everywhere(words: list[str]) -> int:
    """Run the campaign on every node; join what is there. Return the largest exit code."""
    nodes = allocation.nodes()
    own = [sys.executable, "-m", "harness.cluster.repeat", "--here", *words]
    # One node's failed rows end no other node.
    step = subprocess.Popen([*allocation.step(len(nodes)), "--kill-on-bad-exit=0", *own])
    signal.signal(signal.SIGTERM, lambda number, frame: step.send_signal(number))
    code = step.wait()
    if code not in (0, 1):
        return code
    out = Path(words[words.index("--out") + 1])
    joined = subprocess.run([*DRIVER, "join", *map(str, folders_of_nodes(out)), "--out", str(out)])
    return max(code, joined.returncode)


def main() -> None:
    """Run on this node with --here, otherwise on all nodes of the job."""
    words = [word for word in sys.argv[1:] if word != RESUME]
    if words[0] != "--here":
        sys.exit(everywhere(words))
    # A trial's ranks stay on this node.
    name = os.environ["SLURMD_NODENAME"]
    os.environ.update(SLURM_JOB_NODELIST=name, SLURM_JOB_NUM_NODES="1", SLURM_NNODES="1")
    command = here(words[1:])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
