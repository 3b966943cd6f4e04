"""MLPerf's scenarios: LoadGen asks in the worker, and its summary becomes a row.

LoadGen's own verdict is kept. It calls runs valid whose least duration is the suite's, not the ten
minutes of an official result.
"""

import re
from collections.abc import Mapping
from typing import Any

from harness.workers.worker import Failed

# It has wheels for Python 3.9 to 3.13.
PACKAGE = "mlcommons-loadgen==6.0.17"
# Columns of scenarios.csv, and the line of LoadGen's summary, in samples a second or nanoseconds.
RATE = "samples_per_second"
RATES = {"offline": "Samples per second", "server": "Completed samples per second"}
LATENCIES = (("latency_mean_seconds", "Mean latency (ns)"),
             ("latency_p50_seconds", "50.00 percentile latency (ns)"),
             ("latency_p90_seconds", "90.00 percentile latency (ns)"),
             ("latency_p99_seconds", "99.00 percentile latency (ns)"))
UNMET = re.compile(r"^ +(.+) satisfied *: NO$", re.MULTILINE | re.IGNORECASE)


def row_of(scenario: str, batch: int, answer: Mapping[str, Any], summary: str) -> dict[str, Any]:
    """Return the row of scenarios.csv of one run. Raises Failed if the summary lacks a number.

    Offline is one query of all samples, so only its rate says something. `valid` is LoadGen's.
    """
    row: dict[str, Any] = {
        "scenario": scenario, "batch": batch, "calls": answer["steps"],
        "seconds": answer["stop"] - answer["start"],
        "valid": int("Result is : VALID" in summary),
        "unmet": "; ".join(found.strip().lower() for found in UNMET.findall(summary))}
    if scenario != "offline":
        row |= {column: 1e-9 * _number(summary, line) for column, line in LATENCIES}
        if not row["latency_mean_seconds"] > 0:
            raise Failed("protocol", "LoadGen's summary has a mean latency that is not positive")
    row[RATE] = (_number(summary, RATES[scenario]) if scenario in RATES
                 else batch / row["latency_mean_seconds"])
    return row


def of_server(percentile: float, logs: str) -> tuple[float, int]:
    """Return the latency (s) at a percentile, and how many requests were later than the bound.

    Raises Failed if LoadGen's logs lack one.
    """
    late = re.search(r'"key": "result_overlatency_query_count", "value": ([0-9]+),', logs)
    if not late:
        raise Failed("protocol", "LoadGen's log has no result_overlatency_query_count")
    return 1e-9 * _number(logs, f"{percentile:.2f} percentile latency (ns)"), int(late[1])


def _number(summary: str, line: str) -> float:
    number = r"[+-]?[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?"
    found = re.search(rf"^{re.escape(line)}\s*:\s*({number})\s*$", summary, re.MULTILINE)
    if not found:
        raise Failed("protocol", f"LoadGen's summary has no line '{line}'")
    return float(found[1])
