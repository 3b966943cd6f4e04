"""Reads a campaign's folder: `campaign.json` and its tables.

A campaign may have been killed at any moment, so the windows of a process that never finished are
left out. Nothing here computes.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records import pages
from analysis.records.columns import LATE, STRENGTH, TABLES
from analysis.records.tables import read_table
from analysis.records.text import BadRecords
from analysis.traces.kernels import LAST_ROWS, UNCLASSIFIED, classify

SCHEMA = 1
# A resumed process repeats rows. In the tables of `COUNTED` it begins again with its first row: the
# column counts its rows. In those of `KEYS` it repeats single rows, which the columns tell apart.
COUNTED = {"windows": "window", "network": "window", "latencies": "window", "accuracy": "epoch"}
KEYS = {"phases": ("variant", "window"), "loading": ("variant", "window"), "server": ("rate",),
        "scenarios": ("scenario",), "answers": ("sample",)}
# Behind the name of an environment in campaign.json that holds a loader of image files too.
FOR_FILES = " with its loader of files"
# Behind the name of one that also holds MLPerf's LoadGen.
FOR_SCENARIOS = " with LoadGen"


@dataclass(frozen=True, eq=False)
class Campaign:
    """One execution of a suite. It never changes, so what is derived from it may be cached.

    `processes` has a row per finished process. `kernels` holds the trace of each trial, `operators`
    its profile on a CPU. The other tables hold rows of finished processes: `network` of several
    nodes, `latencies`, `server` and `scenarios` of inference, `accuracy` of training to a target,
    `loading` of training from image files, `answers` of trained weights. In campaigns of earlier
    releases one worker proved all processes of a trial (`proves_each_process`), or runners do not
    say what a tier sets (`tells_settings`).
    """

    folder: Path
    meta: dict[str, Any]
    processes: pd.DataFrame
    windows: pd.DataFrame
    counters: pd.DataFrame
    kernels: pd.DataFrame
    operators: pd.DataFrame
    phases: pd.DataFrame
    network: pd.DataFrame
    latencies: pd.DataFrame
    server: pd.DataFrame
    scenarios: pd.DataFrame
    accuracy: pd.DataFrame
    loading: pd.DataFrame
    answers: pd.DataFrame
    proves_each_process: bool
    tells_settings: bool

    @property
    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.meta["trials"]
        return trials

    def rows(self, table: str, trial: str) -> pd.DataFrame:
        """Return a trial's rows of one of `TABLES`. Each table is searched once for all trials."""
        whole: pd.DataFrame = getattr(self, table)
        if table not in self._by_trial:
            self._by_trial[table] = {str(name): rows
                                     for name, rows in whole.groupby("trial", sort=False)}
        found = self._by_trial[table].get(trial)
        return whole.iloc[:0] if found is None else found

    def ok_rows(self, table: str, trial: str) -> pd.DataFrame:
        """Return the rows of a table that belong to a trial's processes that ended well."""
        processes, rows = self.rows("processes", trial), self.rows(table, trial)
        return rows[rows["process"].isin(processes.loc[processes["status"] == "ok", "process"])]

    @property
    def joined(self) -> dict[str, Any]:
        """What campaign.json says of the nodes that each ran the whole campaign; {} of one run."""
        return self.meta.get("joined") or {}

    def nodes_of(self, trial: str, processes: Iterable[int]) -> list[str]:
        """Return the node of each process; [] unless several nodes repeated the campaign."""
        if not self.joined:
            return []
        rows = self.rows("processes", trial)
        names = dict(zip(rows["process"], rows["node"], strict=True))
        return [names[process] for process in processes]

    @cached_property
    def _by_trial(self) -> dict[str, dict[str, pd.DataFrame]]:
        return {}


def reads_files(trial: Mapping[str, Any]) -> bool:
    """Return whether a trial trains from image files."""
    return trial.get("data") == "files"


def infers(trial: Mapping[str, Any]) -> bool:
    """Return whether a trial runs a trained network; one of an earlier release trains."""
    return trial.get("mode") == "inference"


def target_of(campaign: Campaign) -> dict[str, Any]:
    """Return what the suite says of `until`; {} of a campaign that times training alone."""
    return campaign.meta["suite"].get("until") or {}


def server_goal(campaign: Campaign) -> tuple[float, float]:
    """Return the latency (s) of the scenario `server`, and the share of requests that must keep it.

    Both are NaN without it. Suites of earlier releases said them in one key.
    """
    suite = campaign.meta["suite"]
    earlier = suite.get("server") or {}
    share = suite.get("latency_percentile", math.nan) / 100
    seconds = suite.get("latency_bound_seconds") or math.nan
    return earlier.get("latency_seconds", seconds), earlier.get("share", share)


def read(folder: str | Path) -> Campaign:
    """Read the campaign in `folder`. Raises BadRecords."""
    folder = Path(folder)
    meta = pages.read_first(
        folder / "campaign.json", "name a folder that `dlbench run` wrote, such as "
        "results/<campaign>", SCHEMA, pages.CampaignPage)
    trials = {trial["trial"] for trial in meta["trials"]}
    tables = {name: _of_trials(folder / f"{name}.csv", name, trials) for name in TABLES}
    known = set(tables["processes"])
    for name, late in LATE.items():
        tables[name] = tables[name].assign(**{
            column: "" if TABLES[name][column] is str else math.nan
            for column in late if column not in tables[name]})
    # A resumed campaign may repeat a failed process.
    tables["processes"] = tables["processes"].drop_duplicates(
        ["trial", "process"], keep="last", ignore_index=True)
    for name, counter in COUNTED.items():
        tables[name] = _last_attempt(tables[name], counter)
    for name, key in KEYS.items():
        tables[name] = tables[name].drop_duplicates(["trial", "process", *key], keep="last")
    finished = tables["processes"][["trial", "process"]]
    for name in ("counters", *COUNTED, *KEYS):
        if len(tables[name]):
            tables[name] = tables[name].merge(finished, on=["trial", "process"], how="inner")
    tables["operators"] = _ended(tables["operators"])
    tables["kernels"] = _classed(_ended(tables["kernels"]))
    return Campaign(folder, meta, **tables, proves_each_process=set(STRENGTH) <= known,
                    tells_settings="settings" in known)


def _of_trials(file: Path, name: str, trials: Collection[str]) -> pd.DataFrame:
    """Read one of `TABLES`. Raises BadRecords if it names a trial that campaign.json lacks."""
    table = read_table(file, TABLES[name], LATE.get(name, ()))
    unknown = sorted(set(table["trial"]).difference(trials))
    if unknown:
        raise BadRecords(
            f"{file}: column trial: {unknown[0]} is no trial of campaign.json; "
            "the files belong to different campaigns: restore them from one copy")
    return table


def _classed(kernels: pd.DataFrame) -> pd.DataFrame:
    """Classify the unclassified kernels again: the rules grow with the kernels that are met."""
    classes = kernels["kernel"].map(lambda name: classify(name).name)
    return kernels.assign(**{"class": kernels["class"].mask(kernels["class"] == UNCLASSIFIED,
                                                            classes)})


def _ended(traces: pd.DataFrame) -> pd.DataFrame:
    """Leave out the traces that were cut off."""
    whole = traces.loc[traces["class"].isin(LAST_ROWS), "trial"]
    return traces[traces["trial"].isin(whole)]


def _last_attempt(windows: pd.DataFrame, counter: str) -> pd.DataFrame:
    """Keep the last attempt of each process: a resumed one begins with its first window again."""
    if windows.empty:
        return windows
    key, place = [windows["trial"], windows["process"]], windows[counter]
    if "first" in windows:
        # Of one window's calls there are several rows.
        place = place * 2**32 + windows["first"]
    restarted = place.groupby(key).diff() <= 0
    attempt = restarted.groupby(key).cumsum()
    return windows[attempt == attempt.groupby(key).transform("max")]
