"""Submits a campaign to Slurm by submitit, follows it in the queue, and hands back its exit code.

submitit asks `sacct`, which fails without Slurm's accounting, so the state comes from `squeue`.
"""

import pickle
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.cluster.job import SIGNAL, WARNING_SECONDS, Job, Turn
from harness.cluster.options import Cluster
from harness.errors import WrongUse, brief, install
from harness.validation import CHECKOUT

POLL_SECONDS = 2.0
# Without an answer from Slurm, before a job that runs is left alone.
SILENT_SECONDS = 900.0
# For files of another node to be seen here, over NFS.
SHARING_SECONDS = 30.0
MOST_TURNS = 1000
QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"}
ENDED = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL",
         "DEADLINE", "PREEMPTED"}


class JobEnded(Exception):
    """A job left the queue without an exit code; the message says how."""


def ask(command: Sequence[str]) -> str:
    """Return what one of Slurm's commands prints. Raises WrongUse where it is absent or refuses."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise WrongUse(f"{command[0]}: no such command; run this on a login node of the cluster, "
                       "or load its module for Slurm") from None
    except subprocess.TimeoutExpired:
        raise WrongUse(f"{command[0]}: no answer from Slurm in 120 s") from None
    if done.returncode:
        raise WrongUse(f"{command[0]}: {brief(' '.join(done.stderr.split()), 300)}")
    return done.stdout


def submit(cluster: Cluster, job: Job) -> Any:
    """Submit the campaign and return submitit's job. Raises WrongUse with Slurm's own words."""
    ask(["sinfo", "--version"])
    try:
        import submitit
    except ImportError:
        raise WrongUse(f"--on slurm needs submitit: {install('slurm')}; or submit the batch file "
                       "that `dlbench slurm-script` prints") from None
    # Slurm then signals the task alone, not the ranks of a trial too.
    python = f"exec {shlex.quote(sys.executable)}"
    executor = submitit.SlurmExecutor(folder_of(job), MOST_TURNS, python=python)
    named = {"partition": cluster.partition, "account": cluster.account,
             "gpus_per_node": cluster.gpus or None}
    executor.update_parameters(
        job_name="dlbench", nodes=cluster.nodes, ntasks_per_node=1, time=cluster.time,
        exclusive=True, stderr_to_stdout=True, use_srun=False,
        setup=[*cluster.setup, f"export SUBMITIT_PREEMPT_SIGNAL={SIGNAL}",
               f"export PYTHONPATH={CHECKOUT}${{PYTHONPATH:+:$PYTHONPATH}}"],
        additional_parameters={"requeue": True, "signal": f"B:{SIGNAL}@{WARNING_SECONDS}",
                               **cluster.options},
        **{name: value for name, value in named.items() if value is not None})
    try:
        return executor.submit(Turn(job))
    except (subprocess.CalledProcessError, submitit.core.utils.FailedJobError) as error:
        said = re.findall(r"(?:error|sbatch): .*", str(getattr(error, "stderr", "") or error))
        raise WrongUse(f"--on: Slurm refuses the job: {brief(' '.join(said) or str(error), 300)}"
                       ) from None


def folder_of(job: Job) -> Path:
    """Return the folder of the job's own files: beside the records, which are hashed."""
    return job.out.with_name(f"{job.out.name}.slurm")


def follow(job_id: str, note: Callable[[str], None]) -> str:
    """Wait until the job has left the queue; return its last state. A requeued job keeps its nodes.

    All rows of a campaign belong to the same nodes, so those of the first turn are asked for again.
    """
    state, nodes, silent_since = "", "", 0.0
    while True:
        try:
            found = queued(job_id)
        except WrongUse as error:  # its controller may start again or be busy
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > SILENT_SECONDS:
                raise WrongUse(f"{error}; job {job_id} was left alone: `squeue -j {job_id}` and "
                               "`scancel` it, or wait for its records") from None
            time.sleep(POLL_SECONDS)
            continue
        silent_since = 0.0
        if not found:
            return state
        now, held, why = found
        if (now, held) != (state, nodes if held else ""):
            note(f"job {job_id}: {now.lower()}{f' on {held}' if held else ''}"
                 f"{f' ({why})' if now in QUEUED else ''}")
        if now in QUEUED and nodes and state not in QUEUED:
            ask(["scontrol", "update", f"JobId={job_id}", f"ReqNodeList={nodes}"])
        if now in ENDED:
            return now
        state, nodes = now, held or nodes
        time.sleep(POLL_SECONDS)


def queued(job_id: str) -> tuple[str, str, str] | None:
    """Return a job's state, its nodes and the reason it waits; None once Slurm has forgotten it."""
    try:
        line = ask(["squeue", "-h", "-j", job_id, "-t", "all", "-o", "%T|%N|%r"]).strip()
    except WrongUse as error:
        if "Invalid job id" in str(error):
            return None
        raise
    if not line:
        return None
    state, nodes, why = (line.split("|") + ["", ""])[:3]
    return state, nodes, why


def exit_code(job: Job, job_id: str, state: str) -> int:
    """Return the campaign's exit code. Raises JobEnded where the job ended without one."""
    stem = folder_of(job) / f"{job_id}_0_"
    log, file = Path(f"{stem}log.out"), Path(f"{stem}result.pkl")
    until = time.monotonic() + SHARING_SECONDS
    while state == "COMPLETED" and not file.exists() and time.monotonic() < until:
        time.sleep(1)
    said = f"job {job_id} ended as {state.lower() or 'unknown'}; its log: {log}"
    if not file.exists():
        raise JobEnded(said)
    kind, result = pickle.loads(file.read_bytes())
    if kind != "success":
        raise JobEnded(f"{said}: {brief(str(result).strip().splitlines()[-1], 200)}")
    if state != "COMPLETED":
        raise JobEnded(said)
    return int(result)


def nodes() -> list[list[str]]:
    """Return a row for each node and partition, as `sinfo` describes it."""
    form = "%N|%P|%T|%c|%m|%G|%f"
    return [line.split("|") for line in ask(["sinfo", "-h", "-N", "-o", form]).splitlines()]
