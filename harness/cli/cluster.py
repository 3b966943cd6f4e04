"""Campaigns as cluster jobs: `run --on`, `slurm-script` and `doctor --on`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from analysis.statistics.bootstrap import MINIMUM_PROCESSES as FEWEST
from harness.cli.options import RunOptions, folder_of, numbers
from harness.cli.terminal import console, dim, new_folder, say
from harness.cluster import slurm
from harness.cluster.job import Job, script
from harness.cluster.options import Cluster, folders_of_nodes, parse
from harness.errors import WrongUse

COLUMNS = ("node", "partition", "state", "cores", "memory_mib", "gpus", "features")


def submit(options: RunOptions, folder: Path) -> int:
    """Submit the campaign, follow it until it ends, and return its exit code."""
    cluster = parse(options.on)
    job = _job(options, folder, cluster.repeat)
    if cluster.repeat and cluster.nodes < FEWEST:
        dim(f"{cluster.nodes} nodes repeat the campaign: an interval over nodes needs {FEWEST}")
    submitted = slurm.submit(cluster, job).job_id
    say(f"job {submitted}: submitted, records in {folder}")
    try:
        state = slurm.follow(submitted, say)
        code = slurm.exit_code(job, submitted, state)
    except KeyboardInterrupt:
        say(f"\nThe job goes on. Look with `squeue -j {submitted}`, end it with "
            f"`scancel {submitted}`; its records come into {folder}")
        return 1
    except slurm.JobEnded as ended:
        say(f"{ended}. Finished processes are kept: add --resume --out {folder} to go on", "red")
        return 1
    say(f"job {submitted}: exit code {code}, report in {folder}")
    return code


def slurm_script(options: RunOptions) -> None:
    """Print a batch file for `sbatch` that runs the campaign and needs nothing else."""
    from harness.plan.suite import load_suite

    if options.dry_run:
        raise WrongUse("--dry-run: this command only prints; omit it, or plan with "
                       "`dlbench run ... --dry-run`")
    load_suite(options.suite_file, options.overrides)
    folder = options.out or new_folder(options.suite_file.stem)
    cluster = parse(options.on or "slurm")
    print(script(cluster, _job(options, folder, cluster.repeat)), end="")


def describe_nodes(where: str, as_json: bool) -> None:
    """Print a row for each node of the cluster."""
    cluster = parse(where)
    rows = [row for row in slurm.nodes()
            if cluster.partition in (None, row[COLUMNS.index("partition")].rstrip("*"))]
    if as_json:
        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows], indent=1))
        return
    table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def scale(
    folder: Annotated[Path, typer.Argument(
        metavar="DIR", parser=folder_of, help="A campaign of one device.")],
    devices: Annotated[str, typer.Option(help="How many, with commas.")] = "8,64,1024",
    per_node: Annotated[int, typer.Option(min=1, max=64, help="Devices of a node.")] = 8,
) -> None:
    """Predict how a recorded campaign would scale over nodes, beside MLPerf's published times."""
    from analysis.aggregation import clusters
    from analysis.records import reader

    counts = numbers(devices, "--devices")
    found = clusters.table(reader.read(folder), counts, clusters.Cluster(per_node))
    if found.empty:
        raise WrongUse(f"{folder}: no verified trial of training on one device; name a campaign "
                       "that has one")
    table = Table(*map(str, found.columns), box=box.SIMPLE_HEAD,
                  title="efficiency of weak scaling, % of linear, by the model")
    for row in found.to_dict("records"):
        table.add_row(*(f"{100 * value:.1f}" if name in counts else str(value)
                        for name, value in row.items()))
    console.print(table)
    dim(f"Assumed: {clusters.__doc__.partition('Assumptions: ')[2]}".replace("\n", " ").strip())
    shares = ", ".join(f"{100 * share:.0f} % on {count}"
                       for count, share in clusters.published().items())
    dim(f"MLPerf Training 3.0, ResNet-50 on H100, time to accuracy: {shares}. It also loses to "
        "smaller batches a GPU, more epochs and evaluation, which the model leaves out.")


def assumed(options: RunOptions) -> dict[str, Any] | None:
    """Describe a machine like this one with GPUs and nodes of another; None to use this one."""
    from harness.machine import hardware

    cluster = parse(options.on) if options.on else Cluster()
    count = options.assume_gpus or cluster.gpus
    if not count and not options.on:
        return None
    gpu = {"name": "assumed", "driver": "assumed", "memory_bytes": None}
    here = hardware.describe()
    assumed = [{**gpu, "cuda_index": number} for number in range(count)]
    nodes = 1 if cluster.repeat else cluster.nodes
    return {**here, "gpus": assumed or here["gpus"], "nodes": ["assumed"] * nodes}


def first_records(options: RunOptions, folder: Path) -> Path:
    """Return the folder that tells whether the campaign has begun: a node's where nodes repeat."""
    repeats = options.on and parse(options.on).repeat
    return next(iter(folders_of_nodes(folder) if repeats else ()), folder)


def _job(options: RunOptions, folder: Path, repeat: bool) -> Job:
    """Return the job whose command is the present one, without what only the submission needs."""
    if options.live:
        raise WrongUse("--live: a job's page could not be reached from here; use "
                       "`dlbench live DIR` on the records")
    words = ["run", str(options.suite_file.absolute()), *(options.overrides or []),
             "--out", str(folder.absolute())]
    words += ["--allow-dirty"] if options.allow_dirty else []
    words += [word for each in options.interpreter or [] for word in ("--interpreter", each)]
    return Job(tuple(words), folder.absolute(), Path.cwd(), repeat)


