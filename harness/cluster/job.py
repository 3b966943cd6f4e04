"""A campaign as a batch job: its command, the plain batch file, and the task that submitit runs.

Both forms go on with a campaign that has begun, so a job that was preempted, requeued or whose node
died loses only the process that ran. Shortly before its time ends a job stops the campaign and asks
for another turn, unless this turn finished nothing: then none would.
"""

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster.options import Cluster, folders_of_nodes
from harness.validation import CHECKOUT

# Before the end of a job's time: a process in a window is given up, records are written.
WARNING_SECONDS = 90
STOPPING_SECONDS = 60
SIGNAL = "USR2"
DRIVER = ("-m", "harness.start")
ON_EVERY_NODE = ("-m", "harness.cluster.repeat")

SCRIPT = """\
#!/bin/bash
{directives}
# One campaign of dlbench. Submit this file with sbatch. After a preemption it goes on by itself.
set -u
{setup}
export PYTHONPATH={checkout}${{PYTHONPATH:+:$PYTHONPATH}}
cd {place}
out={out}
finished() {{ cat "$out/processes.csv" "$out".nodes/*/processes.csv 2>/dev/null | wc -l; }}
done_before=$(finished)
resume=(); [ -e "$out/campaign.json" ] && resume=(--resume)
{command} "${{resume[@]}}" &
campaign=$!
next_turn() {{
    kill -TERM $campaign; wait $campaign
    if [ "$(finished)" -gt "$done_before" ]; then
        scontrol requeue "$SLURM_JOB_ID"; sleep 600
    fi
    echo "dlbench: no process was finished in the job's time: ask for more of it" >&2
    exit 1
}}
trap next_turn {signal}
wait $campaign
"""


@dataclass(frozen=True)
class Job:
    """A campaign's words behind `dlbench`, its folder, and the folder it is started in.

    With `repeat`, every node of the job runs it.
    """

    words: tuple[str, ...]
    out: Path
    place: Path
    repeat: bool = False

    @property
    def command(self) -> list[str]:
        return [sys.executable, *(ON_EVERY_NODE if self.repeat else DRIVER), *self.words]


def script(cluster: Cluster, job: Job) -> str:
    """Return a batch file that needs nothing but Slurm's own commands."""
    directives = {
        "job-name": "dlbench", "partition": cluster.partition, "account": cluster.account,
        "nodes": cluster.nodes, "ntasks-per-node": 1, "exclusive": True,
        "gpus-per-node": cluster.gpus or None, "time": cluster.time, "requeue": True,
        "signal": f"B:{SIGNAL}@{WARNING_SECONDS}", "open-mode": "append",
        "output": f"{job.out}.%j.log", **cluster.options}
    lines = [f"#SBATCH --{name}" + ("" if value is True else f"={value}")
             for name, value in directives.items() if value is not None]
    return SCRIPT.format(directives="\n".join(lines), setup="\n".join(cluster.setup),
                         checkout=shlex.quote(str(CHECKOUT)), place=shlex.quote(str(job.place)),
                         out=shlex.quote(str(job.out)), signal=SIGNAL,
                         command=shlex.join(job.command))


class Turn:
    """What submitit runs in a job: the campaign, or the rest of it."""

    def __init__(self, job: Job):
        self.job = job
        self.campaign: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Run the campaign and return its exit code."""
        self.finished = self._count()
        words = ["--resume"] if (self.job.out / "campaign.json").is_file() else []
        self.campaign = subprocess.Popen([*self.job.command, *words], cwd=self.job.place)
        # A handler that calls checkpoint() comes between two polls; wait() would hold its lock.
        while self.campaign.poll() is None:
            time.sleep(0.5)
        return self.campaign.returncode

    def checkpoint(self) -> Any:
        """Stop the campaign and return the task for the next turn; None if this one was futile."""
        from submitit.helpers import DelayedSubmission

        if self.campaign:
            self.campaign.terminate()
            until = time.monotonic() + STOPPING_SECONDS
            while self.campaign.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
        return DelayedSubmission(Turn(self.job)) if self._count() > self.finished else None

    def _count(self) -> int:
        folders = [self.job.out, *folders_of_nodes(self.job.out)]
        tables = [folder / "processes.csv" for folder in folders]
        return sum(table.read_bytes().count(b"\n") for table in tables if table.is_file())
