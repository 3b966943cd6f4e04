"""`dlbench verify`: proves every framework's networks against the NumPy reference.

It prints a verdict for each and a matrix of all of them. In inference an engine's outputs are
proven, else a framework's training step.
"""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import networks
from harness.campaign.campaign import prepare
from harness.campaign.session import Session
from harness.cli.terminal import Notes
from harness.errors import WrongUse
from harness.inference import judge
from harness.inference.reference import Asked
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.proof.verdict import Verdict
from harness.records.table import text_of
from harness.validation import validate
from harness.workers.launch import task_of
from harness.workers.worker import Failed, Unsupported

COLUMNS = ("framework", "network", "parameters", "loss_error", "gradient_error", "trajectory_error",
           "verdict", "reason")
OF_SEVERAL = ("devices", "copies_error")
OF_INFERENCE = ("framework", "network", "parameters", "output_error", "output_limit", "verdict",
                "reason")
COLOURS = {"same": "green", "different": "bold red", "failed": "bold red",
           "unsupported": "yellow"}
ONE_PROCESS = {"data": "device", "batches": 2, "processes": 1, "telemetry": False}


def verify(wanted: dict[str, Any], console: Console, jobs: int = 1,
           out: Path | None = None) -> list[dict[str, Any]]:
    """Prove every network in every framework, `jobs` at a time, and print the verdicts.

    `wanted` has a suite's keys. After each verdict all of them are written to `out`, so a command
    that is stopped loses none.
    """
    suite = validate({**wanted, **ONE_PROCESS}, Suite, "dlbench verify")
    plan = prepare(suite, "dlbench verify")
    rows: list[dict[str, Any]] = []

    def keep(trial: Trial, verdict: Verdict | judge.Verdict) -> None:
        row = {"framework": trial.framework, "network": trial.network, "devices": trial.devices,
               **verdict.__dict__}
        infers = trial.mode == "inference"
        columns = ("devices", *OF_INFERENCE) if infers else (*COLUMNS, *OF_SEVERAL)
        rows.append({column: row.get(column, math.nan) for column in columns})
        if out:
            write(rows, out)
        console.print(_line(rows[-1]), highlight=False, soft_wrap=True)

    for trial in plan.trials:
        if trial.status != "planned":
            keep(trial, Verdict("unsupported", trial.reason))
    with Session.open(plan, Notes()) as session:
        verdicts = session.live.each(partial(prove, session), plan.planned, jobs)
        for trial, verdict in zip(plan.planned, verdicts, strict=True):
            keep(trial, verdict)
    console.print(matrix(rows))
    return rows


def prove(session: Session, trial: Trial) -> Verdict | judge.Verdict:
    """Prove a trial's network in a worker of its own, at twice the samples of the proof."""
    log = session.logs / f"{trial.trial}-proof.log"
    verdict: Verdict | judge.Verdict
    try:
        with session.start(trial, log) as worker, session.live.holding(worker):
            session.greet(worker, trial)
            if trial.mode == "inference":
                verdict = session.inference.prove(worker, Asked.of(trial),
                                                  session.build(worker, trial), "device")
            else:
                verdict = session.judge.judge(worker, networks.get(trial.network), task_of(trial))
    except Unsupported as refusal:
        verdict = Verdict("unsupported", str(refusal))
    except Failed as failure:
        verdict = Verdict("different", str(failure), failure=failure.kind)
    # A worker that failed in another way gave no answer that could be compared.
    died = verdict.failure not in ("", "different")
    return replace(verdict, verdict="failed") if died else verdict


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the verdicts as CSV; with several devices also their number and their copies' error."""
    columns = [*COLUMNS, *(OF_SEVERAL if any(row["devices"] > 1 for row in rows) else ())]
    if any("output_error" in row for row in rows):
        columns = list(OF_INFERENCE)
    # A count of 0 was not measured.
    found = ({**row, "parameters": row.get("parameters") or ""} for row in rows)
    try:
        path.write_text(text_of(columns, found), encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"--out {path}: cannot be written ({error.strerror}); name another file"
                       ) from None


def matrix(rows: list[dict[str, Any]]) -> Table:
    """Lay out frameworks by networks: the largest error if they are the same, else the verdict."""
    what = "output" if any("output_error" in row for row in rows) else "gradient"
    names = list(dict.fromkeys(_name(row) for row in rows))
    table = Table("network", *names,
                  caption="A number means same. It is the error beyond what rounding explains.",
                  title=f"Largest relative {what} error against the reference")
    for network in dict.fromkeys(row["network"] for row in rows):
        cells = {_name(row): row for row in rows if row["network"] == network}
        table.add_row(network, *(_cell(cells[name], what) for name in names))
    same = [row for row in rows if row["verdict"] == "same"]
    errors = {name: [error for row in same if _name(row) == name
                     and not math.isnan(error := row[f"{what}_error"])] for name in names}
    table.add_section()
    largest = [f"{max(errors[name]):.1e}" if errors[name] else "-" for name in names]
    table.add_row("largest", *largest)
    return table


def _name(row: dict[str, Any]) -> str:
    return f"{row['framework']} x{row['devices']}" if row["devices"] > 1 else str(row["framework"])


def _line(row: dict[str, Any]) -> str:
    colour = COLOURS[row["verdict"]]
    text = f"{_name(row):<12} {row['network']:<14} [{colour}]{row['verdict']}[/{colour}]"
    reason = escape(row["reason"])  # a framework's error may hold what looks like rich's markup
    if row["verdict"] == "unsupported":
        return f"{text}  {reason}"
    if "output_error" in row:
        return (f"{text}  {row['parameters']:>11,} parameters, outputs off by "
                f"{row['output_error']:.1e}, {row['output_limit']:.1e} allowed  {reason}").rstrip()
    # With dropout only the scale of gradients is compared, which leaves no distance.
    errors = [f"{name} {error:.1e}" for name in ("loss", "gradient", "trajectory", "copies")
              if not math.isnan(error := row[f"{name}_error"])]
    text += f"  {row['parameters']:>11,} parameters"
    if errors:
        text += f", relative errors: {', '.join(errors)}"
    return f"{text}  {reason}".rstrip()


def _cell(row: dict[str, Any], what: str) -> str:
    if row["verdict"] == "same":
        error = row[f"{what}_error"]
        return "same" if math.isnan(error) else f"{error:.1e}"
    return f"[{COLOURS[row['verdict']]}]{row['verdict']}"
