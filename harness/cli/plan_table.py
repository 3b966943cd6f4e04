"""Prints what `--dry-run` shows of a plan: its trials, and how long they may take."""

from collections import Counter

from rich import box
from rich.table import Table

from harness.campaign import profiling, tracing
from harness.campaign.session import Plan
from harness.cli.progress import count, duration
from harness.cli.terminal import console, say
from harness.plan.planner import estimate_seconds, shares_cores


def print_plan(plan: Plan) -> None:
    """Print a row for each trial that would run, what is refused, and an estimate of the time."""
    table = Table("framework", "network, batch", "on", "how", "time", box=box.SIMPLE)
    total, refused, cores = 0.0, Counter[str](), plan.machine["cpu"]["allowed"]
    processes = plan.suite.processes
    for trial in plan.trials:
        if trial.status != "planned":
            refused[trial.reason] += 1
            continue
        seconds = processes * estimate_seconds(trial, plan.suite)
        total += seconds
        where = f"{trial.devices} x {trial.device_kind}"
        where += f", threads {trial.threads}" if trial.device_kind == "cpu" else ""
        where += f", {trial.strategy}" if trial.strategy else ""
        where += f", sharing {count(cores, 'core')}" if shares_cores(trial, cores) else ""
        side = f"{trial.side}: " if trial.side else ""
        table.add_row(f"{side}{trial.framework} {trial.release}", f"{trial.network}, {trial.batch}",
                      where, f"{trial.precision} {trial.tuning} {trial.data}", duration(seconds))
    if table.row_count:
        console.print(table)
    for reason, times in refused.items():
        say(f"{times} refused: {reason}", "yellow")
    time = f"about {duration(total)} once the environments are built" if total else "all refused"
    say(f"{count(len(plan.trials), 'trial')}, {count(processes, 'process', 'es')} each"
        f"{count_traces(plan)}, {time}. Nothing was started.")


def count_traces(plan: Plan) -> str:
    """Count the traces and profiles of a campaign; each needs one more worker."""
    suite = plan.suite
    counts = {"trace": sum(tracing.wanted(suite, trial) for trial in plan.planned),
              "profile": sum(profiling.wanted(suite, trial) and trial.devices == 1
                             for trial in plan.planned)}
    return "".join(f", {count(number, what)}" for what, number in counts.items() if number)
