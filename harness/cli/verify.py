"""`dlbench verify`: every framework's networks against the NumPy reference, a verdict a row, and one matrix at the end."""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.campaign import campaign
from harness.environments import store
from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.proof.checks import Checks
from harness.proof.judge import Judge, Verdict
from harness.validation import validate
from harness.workers.scratch import make_large_folder

COLUMNS = ("framework", "network", "parameters", "loss_error", "gradient_error", "trajectory_error", "verdict", "reason")
OF_SEVERAL = ("devices", "copies_error")
COLOURS = {"same": "green", "different": "bold red", "unsupported": "yellow"}


def verify(wanted: dict[str, Any], console: Console, jobs: int = 1) -> list[dict[str, Any]]:
    """Check every network in every framework, `jobs` at a time, and print the verdicts; `wanted` has a suite's keys."""
    suite = validate({**wanted, "data": "device", "batches": 2, "processes": 1}, Suite, "dlbench verify")
    prepared = campaign.prepare(suite, "dlbench verify")
    ready = campaign.make_environments(prepared, lambda text: console.print(text, style="dim", markup=False, highlight=False))
    rows = []

    def note(trial: Trial, verdict: Verdict) -> None:
        row = {"framework": trial.framework, "network": trial.network, "devices": trial.devices, **verdict.__dict__}
        rows.append({column: row[column] for column in (*COLUMNS, *OF_SEVERAL)})
        console.print(_line(rows[-1]), highlight=False, soft_wrap=True)

    for trial in prepared.trials:
        if trial.status != "planned":
            note(trial, Verdict("unsupported", trial.reason))
    with make_large_folder() as scratch:
        ready = store.sharing(ready, Path(scratch))
        judge = Judge(Path(scratch), suite.check.batch, suite.check.steps, suite.seed, suite.limits.check)
        checks = Checks(judge, ready, suite.limits, Path(scratch) / "logs")
        planned = [trial for trial in prepared.trials if trial.status == "planned"]
        checks.ahead(planned, jobs, lambda trial, checked: note(trial, checked.verdict))
    console.print(matrix(rows))
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the verdicts as CSV, where there are several devices with their number and how far their copies differ."""
    columns = [*COLUMNS, *(OF_SEVERAL if any(row["devices"] > 1 for row in rows) else ())]
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows({key: "" if _missing(key, value) else value for key, value in row.items()} for row in rows)
    except OSError as error:
        raise WrongUse(f"--out {path}: cannot be written ({error.strerror})") from None


def _missing(key: str, value: Any) -> bool:
    """Say whether a value was not measured: an error that is NaN, a count of parameters that nobody built."""
    return value != value or (key == "parameters" and not value)


def matrix(rows: list[dict[str, Any]]) -> Table:
    """Frameworks by networks: the largest gradient error where they are the same, else the verdict."""
    names = list(dict.fromkeys(_name(row) for row in rows))
    table = Table("network", *names, title="Largest relative gradient error against the reference", caption="same unless said")
    for network in dict.fromkeys(row["network"] for row in rows):
        cells = {_name(row): row for row in rows if row["network"] == network}
        table.add_row(network, *(_cell(cells[name]) for name in names))
    same = [row for row in rows if row["verdict"] == "same"]
    errors = {name: [row["gradient_error"] for row in same if _name(row) == name] for name in names}
    table.add_section()
    table.add_row("largest", *(f"{max(errors[name]):.1e}" if errors[name] else "-" for name in names))
    return table


def _name(row: dict[str, Any]) -> str:
    return f"{row['framework']} x{row['devices']}" if row["devices"] > 1 else str(row["framework"])


def _line(row: dict[str, Any]) -> str:
    colour = COLOURS[row["verdict"]]
    text = f"{_name(row):<12} {row['network']:<14} [{colour}]{row['verdict']}[/{colour}]"
    reason = escape(row["reason"])  # a framework's error may hold what looks like rich's markup
    if row["verdict"] == "unsupported":
        return f"{text}  {reason}"
    text += (f"  {row['parameters']:>11,} parameters, relative errors: loss {row['loss_error']:.1e}, "
             f"gradient {row['gradient_error']:.1e}, trajectory {row['trajectory_error']:.1e}")
    if row["copies_error"] == row["copies_error"]:
        text += f", copies {row['copies_error']:.1e}"
    return f"{text}  {reason}".rstrip()


def _cell(row: dict[str, Any]) -> str:
    if row["verdict"] == "same":
        return f"{row['gradient_error']:.1e}"
    return f"[{COLOURS[row['verdict']]}]{row['verdict']}"
