"""Compares the calls of inference: the median call and the slowest 1 %, each with its own verdict.

A mean over calls hides a change of the few slowest ones. Slow calls come in bursts, so each process
counts as one value: the quantile of its calls.
"""

import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import warm_up
from analysis.statistics.bootstrap import Times
from analysis.trials import latency, summary

QUANTILES = ("p50", "p99")
# In front of the names of a quantile's columns; those of the time per call have nothing.
PREFIXES = {name: f"latency_{name}_" for name in QUANTILES}
OF_A_RATIO = ("ratio", "ratio_low", "ratio_high", "visible", "verdict")
# Columns of comparisons of inference.
COLUMNS = tuple(prefix + each for prefix in PREFIXES.values()
                for each in ("seconds_a", "seconds_b", *OF_A_RATIO))
TOO_FEW_CALLS = "too few calls to tell"
HOW_TO_READ = (
    "The ratio is B's time per call over A's: above 1, B is slower. p50 is a process's median "
    "call; 1 % of its calls are slower than p99. Each has its own ratio, of the medians over "
    "processes. An interval that contains 1 shows no difference. The smallest visible difference "
    "is the one that this interval would have excluded. {memory} A workload is compared only if "
    "both sides were proved to run the same network.")


def of_processes(campaign: Campaign, trial: str) -> dict[str, list[Times]]:
    """Return each of `QUANTILES` of a trial's ok processes in seconds, [] of too few calls."""
    first = warm_up.leading(summary.timed(campaign, trial))
    return {name: latency.of_processes(campaign, trial, first, name) for name in QUANTILES}


def prefixes(rows: pd.DataFrame) -> dict[str, str]:
    """Return the prefix of each quantile that rows of a comparison have; {} of training."""
    return PREFIXES if COLUMNS[0] in rows else {}


def measures(rows: pd.DataFrame) -> pd.DataFrame:
    """Give each ratio a row of its own, with the index of its workload.

    Column `measure` names the quantile, "" for the time per step or call. `OF_A_RATIO` are those of
    the measure. A quantile that too few calls show has no row.
    """
    found = [rows.assign(measure="")]
    for name, prefix in prefixes(rows).items():
        own = rows[rows[f"{prefix}ratio"].notna()]
        found.append(own.assign(measure=name, **{each: own[prefix + each] for each in OF_A_RATIO}))
    return pd.concat([part for part in found if len(part)] or found[:1]).sort_index(kind="stable")
