"""How much other programs computed while a campaign timed its windows, from counters.csv.

Beside every window stand the processor seconds of the whole machine and those of the driver and all
that it started. The rest is other programs'. Frameworks lose unequally to them: threads that wait
for each other by spinning lose most. Rows on processors that lost much are not compared.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign

# Of the processors that a row needs. Ticks of 10 ms and interrupts stay below it.
NOTICED = 0.1
# Beside programs of the lowest priority that used 28 to 70 % of two processors, ResNet-56 took
# 747 ms in PyTorch and 100 in TensorFlow; alone they took 54 and 76.
CROWDED = 0.25


def remarks(campaign: Campaign) -> list[str]:
    """Say how many rows were timed beside other programs, and how much these computed."""
    known = _known(campaign)
    noticed = _beyond(campaign, known, NOTICED)
    if not noticed:
        return []
    cores = [known[name] for name in noticed]
    ends = dict.fromkeys(f"{each:.2g}" for each in (min(cores), max(cores)))
    rows = "row" if len(known) == 1 else "rows"
    rows += " was" if len(noticed) == 1 else " were"
    return [f"Other programs used {' to '.join(ends)} of {_logical(campaign)} processors while "
            f"{len(noticed)} of {len(known)} {rows} timed. They slow frameworks down unequally: "
            "stop them and measure again before you compare."]


def crowded(campaign: Campaign) -> set[str]:
    """Return the trials on processors that lost too much to other programs to be compared."""
    on_processors = {trial["trial"] for trial in campaign.trials if trial["device_kind"] == "cpu"}
    return on_processors & set(_beyond(campaign, _known(campaign), CROWDED))


# A report asks several times; the sums over counters take a tenth of an audit.
@lru_cache(maxsize=2)
def _known(campaign: Campaign) -> dict[str, float]:
    """Return the processors that other programs used, by trial, where that was counted."""
    return {trial["trial"]: cores for trial in campaign.trials
            if trial.get("nodes", 1) == 1 and not _contained(campaign, trial)
            and (cores := others(campaign, trial["trial"])) is not None}


def _beyond(campaign: Campaign, known: Mapping[str, float], share: float) -> list[str]:
    """Return the trials that lost more than this share of the processors that they need."""
    found = []
    for trial in campaign.trials:
        needed, name = _needed(campaign, trial), trial["trial"]
        spare = max(0, _logical(campaign) - needed)
        if name in known and known[name] - spare > share * needed:
            found.append(name)
    return found


def others(campaign: Campaign, trial: str) -> float | None:
    """Return the processors that other programs used: the median over windows, None if unknown."""
    counters = campaign.rows("counters", trial)
    edges = counters[(counters["device"] == "host") & counters["own_seconds"].notna()]
    windows = campaign.rows("windows", trial)
    shares = [share for process, rows in windows[windows["window"] >= 0].groupby("process")
              for share in _of_process(rows, edges[edges["process"] == process])]
    return float(pd.Series(shares).median()) if shares else None


def _of_process(windows: pd.DataFrame, edges: pd.DataFrame) -> list[float]:
    """Return the processors that other programs used, a number a window."""
    edges = edges.sort_values("seconds")
    rest = (edges["cpu_seconds"] - edges["own_seconds"]).to_numpy()
    times, found = edges["seconds"].to_numpy(), []
    for start, stop in zip(windows["start"], windows["stop"], strict=True):
        before, after = times.searchsorted(start, "right") - 1, times.searchsorted(stop)
        if before >= 0 and after < len(times):
            # Ticks may round below what is none.
            found.append(max(0.0, (rest[after] - rest[before]) / (times[after] - times[before])))
    return found


def _logical(campaign: Campaign) -> int:
    return int((campaign.meta["machine"].get("cpu") or {}).get("logical") or 0)


def _needed(campaign: Campaign, trial: Mapping[str, Any]) -> int:
    """Return the processors of a row; one on GPUs may need any, to launch work in time."""
    asked = trial["devices"] * (trial.get("threads") or 0)
    return asked if trial["device_kind"] == "cpu" and asked else _logical(campaign)


def _contained(campaign: Campaign, trial: Mapping[str, Any]) -> bool:
    """Return whether a trial ran in a container, whose processes the driver did not start."""
    name = f"{trial['framework']}=={trial['release']}"
    return bool((campaign.meta.get("environments", {}).get(name) or {}).get("container"))
