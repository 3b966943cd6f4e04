"""What a comparison comes to: one word and one exit code, as JSON and as a short Markdown text.

The page of a comparison is written by `analysis.compare.report`; this is what a job in CI reads.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.compare import calls, comparison, report, rules, verdicts
from analysis.compare.comparison import Comparison
from analysis.compare.verdicts import DIFFERENT, FAILED, TOO_FEW
from analysis.display import page, provenance
from analysis.statistics.bootstrap import CONFIDENCE

SCHEMA = 1
FINE, REGRESSION, INCONCLUSIVE, NOT_RUN = "fine", "regression", "inconclusive", "not run"
EXIT_CODES = {FINE: 0, REGRESSION: 1, INCONCLUSIVE: 3, NOT_RUN: 4}
TITLES = {FINE: "no regression shown", REGRESSION: "regression", INCONCLUSIVE: "inconclusive",
          NOT_RUN: "a side could not be built or run"}
OF_A_WORKLOAD = (
    *verdicts.WORKLOAD, "framework_a", "framework_b", "release_a", "release_b", "repeat", "trial_a",
    "trial_b", "step_seconds_a", "step_seconds_b", "processes_a", "processes_b", "ratio",
    "ratio_low", "ratio_high", "visible", "verdict", "reason", "threshold", "regression",
    "acknowledged")


@dataclass(frozen=True)
class NotRun:
    """A comparison of which nothing was timed, because a side could not be built or run."""

    a: str
    b: str
    side: str
    reason: str


def outcome_of(found: Comparison) -> str:
    """Return what the rows come to, the worst first.

    B counts as a regression if it trains something else and A does not. A workload that was not
    compared, or whose interval reaches beyond its threshold, leaves the answer open.
    """
    rows = found.judged
    refused = set(rows["refusal"])
    known = rows["acknowledged"] != ""
    if DIFFERENT in refused or ((rows["regression"] == rules.SHOWN) & ~known).any():
        return REGRESSION
    if FAILED in refused:
        return NOT_RUN
    unclear = (rows["regression"] == rules.POSSIBLE) | (rows["verdict"] == TOO_FEW)
    return INCONCLUSIVE if refused - {""} or unclear.any() or rows.empty else FINE


def as_json(found: Comparison | NotRun) -> str:
    """Write a comparison as JSON: outcome, exit code, false alarms, a mapping a workload."""
    if isinstance(found, NotRun):
        return _dumps({**_head(found.a, found.b, NOT_RUN), "reason": f"{found.side}: "
                       f"{found.reason}", "workloads": []})
    known = found.calibration or (found if found.same else None)
    seen = found.rows["visible"].dropna()
    alarms = comparison.alarms(known.rows) if known else ()
    columns = (*OF_A_WORKLOAD, *(calls.COLUMNS if calls.prefixes(found.rows) else ()))
    workloads = [{column: _plain(row.get(column)) for column in columns}
                 for row in found.judged.to_dict("records")]
    return _dumps({
        **_head(found.a.name, found.b.name, outcome_of(found)),
        "reason": " ".join([comparison.headline(found), *comparison.notes(found)]),
        "false_alarms": {"by_chance": round(1 - CONFIDENCE, 4), "comparisons": len(alarms),
                         "seen": int(sum(alarms))},
        "smallest_visible_difference": {"least": _plain(seen.min()), "most": _plain(seen.max()),
                                        "median": _plain(seen.median())},
        "workloads": workloads})


def as_markdown(found: Comparison | NotRun) -> str:
    """Write a comparison as a short text for a comment or a job's summary."""
    if isinstance(found, NotRun):
        return "\n\n".join([
            f"## dlbench: {found.b} against {found.a}: {TITLES[NOT_RUN]}",
            f"**{found.side}** could not be built or run, so nothing was timed:",
            f"```\n{found.reason}\n```"]) + "\n"
    meta = found.b.campaign.meta
    facts = dict(provenance.facts(meta))
    where = [facts.get(name, "") for name in ("processor", "GPUs", "started", "dlbench")]
    said, *listed = report.lines(found)
    return "\n\n".join([
        f"## dlbench: {found.b.name} against {found.a.name}: {TITLES[outcome_of(found)]}",
        f"A is {found.a.name}, B is {found.b.name}. {said}",
        page.markdown(report.answer(found)),
        "\n".join(f"- {text}" for text in listed),
        f"<sub>{'; '.join(filter(None, where))}</sub>"]) + "\n"


def _head(a: str, b: str, outcome: str) -> Mapping[str, Any]:
    return {"schema": SCHEMA, "a": a, "b": b, "outcome": outcome,
            "exit_code": EXIT_CODES[outcome]}


def _dumps(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return a cell as JSON has it: null for a missing one."""
    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
