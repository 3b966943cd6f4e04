"""The minimum effort behind a published row on a GPU, and what falls short of it.

With fewer processes most intervals are too wide to tell two frameworks apart. Shorter windows time
the two synchronisations at their ends too. A second campaign on the same host changed rows that
wait for the host by 13 to 29 %. Rows below the minimum stay valid; their readers are told.
"""

import pandas as pd

from analysis.records.reader import Campaign
from analysis.trials import company
from analysis.trials.summary import without_diverged

PROCESSES, WINDOW_SECONDS, WINDOW_STEPS = 5, 0.5, 10
# A row should be at least so many times as fast as a loop of its framework without dlbench.
OF_ITS_LOOP = 0.98
# The length of a window is chosen in the warm-up, where a step is slower.
SHORTER = 0.9
# Concerns of harness.machine and harness.campaign that mean company.
COMPANY = ("others are computing here", "other processes use it", "others computed on it")
RULE = (f"It is {PROCESSES} processes, windows of {WINDOW_SECONDS:g} s and {WINDOW_STEPS} steps, "
        "and an idle machine.")


def remarks(campaign: Campaign) -> list[str]:
    """Say where a campaign's rows on GPUs fall short, and how many rows had company."""
    return [*_fallen_short(campaign), *company.remarks(campaign)]


def unfinished(campaign: Campaign) -> list[str]:
    """Say how much was measured of a campaign that has not ended."""
    if campaign.meta["finished"]:
        return []
    planned = sum(trial["processes_planned"] for trial in campaign.trials
                  if trial["status"] == "planned")
    return [f"Not finished: {len(campaign.processes)} of {planned} processes have run. "
            "`dlbench run --resume` goes on."]


def _fallen_short(campaign: Campaign) -> list[str]:
    rows = of_rows(campaign)
    found = list(filter(None, (
        _short(rows, rows["processes"] < PROCESSES, "processes", "processes"),
        _short(rows, rows["seconds"] < SHORTER * WINDOW_SECONDS, "seconds", "s a window"),
        _short(rows, rows["steps"] < WINDOW_STEPS, "steps", "steps a window"))))
    if len(rows):
        texts = (text for key in ("concerns", "dirty") for text in campaign.meta.get(key) or ())
        found += dict.fromkeys(text for text in texts if any(word in text for word in COMPANY))
    if not found:
        return []
    return [" ".join((f"Less than the minimum effort of a published GPU row. {RULE}",
                      *(f"{text[0].upper()}{text[1:]}." for text in found)))]


def of_rows(campaign: Campaign) -> pd.DataFrame:
    """Return the ok processes, and the median seconds and steps of a window, of each GPU's row."""
    campaign = without_diverged(campaign)
    on_gpus = [trial["trial"] for trial in campaign.trials if trial["device_kind"] == "cuda"]
    ok = campaign.processes[(campaign.processes["status"] == "ok")
                            & campaign.processes["trial"].isin(on_gpus)]
    timed = campaign.windows[campaign.windows["window"] >= 0].merge(ok[["trial", "process"]])
    return timed.groupby("trial", sort=False).agg(
        processes=("process", "nunique"), seconds=("seconds", "median"), steps=("steps", "median"))


def _short(rows: pd.DataFrame, short: "pd.Series[bool]", column: str, unit: str) -> str:
    """Count the rows that are short of something, and say the range of what they have."""
    if not short.any():
        return ""
    ends = dict.fromkeys(f"{value:.2g}" for value in
                         (rows.loc[short, column].min(), rows.loc[short, column].max()))
    unit = "process" if (column, *ends) == ("processes", "1") else unit
    return f"{short.sum()} of {len(rows)} rows have {' to '.join(ends)} {unit}"
