"""Which rows of a campaign compare with each other, what each is called, and how fast it is.

Rows compare only within a group: they differ in nothing but framework, release and strategy. What
varies between groups is a column of a table. What does not is said once, by `throughout`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Times
from analysis.trials import company
from analysis.trials.summary import times_of, without_diverged

GROUP = ["network", "batch", "devices", "device_kind", "threads", "precision", "tuning", "data"]
# Without the tier, to compare each framework at its best.
ACROSS_TIERS = [column for column in GROUP if column != "tuning"]
ALWAYS = ("network", "batch")
# How a runner refuses a tier that sets what an earlier one sets.
SAME_TIER = r"^same as (\w+): "
# Behind a row that has a caveat. The first table says which, the others refer to it.
MARK = "†"
SEE_FIRST = f"{MARK} The row has a caveat, which stands below the first table."
FASTEST, SLOWER, NO_DIFFERENCE, TOO_FEW = (
    "fastest", "slower", "no difference seen", "too few processes to tell")
CROWDED = "not compared: other programs were computing"
UNDECIDED = (NO_DIFFERENCE, TOO_FEW, CROWDED)
SPEEDS = ["relative_speed", "relative_speed_low", "relative_speed_high"]
SETTINGS = {"batch": "batch {}", "devices": "{} devices", "threads": "{} threads",
            "data": "data {}", "global_batch": "global batch {}", "side": "side {}"}
DATA = {"device": "batches already on the device", "files": "batches read from image files",
        "host": "batches copied from host memory each step", "real": "a real data set"}


def relative(campaign: Campaign, trials: pd.DataFrame, keys: Sequence[str] = tuple(GROUP),
             times: Callable[[Campaign, str], list[Times]] = times_of) -> pd.DataFrame:
    """Compare each verified trial with the fastest one of those that have the same `keys`.

    `times` returns the measured times of a trial; `step_seconds` of `trials` is their estimate.

    Columns: GROUP, contestant, framework, strategy, trial, relative_speed (1 is the fastest's,
    smaller is slower) with _low and _high, and verdict: fastest, slower, `NO_DIFFERENCE` where the
    interval contains 1, `TOO_FEW`, or `CROWDED` where either row lost processors to others. The
    fastest is `CROWDED` if it compares with none.
    """
    campaign, crowded = without_diverged(campaign), company.crowded(campaign)
    ranked = trials.assign(contestant=contestants(trials))[trials["verified"] == "yes"]
    columns = [*GROUP, "contestant", "framework", "strategy", "trial"]
    found: list[dict[Any, Any]] = []
    for _, group in ranked.groupby(list(keys), sort=False, dropna=False):
        first, *others = group.sort_values("step_seconds")[columns].to_dict("records")
        best = times(campaign, first["trial"])
        # Which row is the fastest is chosen from the same times, so all pairs are compared.
        pairs = max(1, math.comb(len(group), 2))
        slower: list[dict[Any, Any]] = []
        for other in others:
            ratio = bootstrap.ratio(best, times(campaign, other["trial"]), comparisons=pairs)
            verdict = CROWDED if crowded & {first["trial"], other["trial"]} else _verdict(ratio)
            slower.append({**other, **ratio.columns("relative_speed"), "verdict": verdict})
        alone = bool(slower) and all(row["verdict"] == CROWDED for row in slower)
        itself = bootstrap.Estimate(1.0, 1.0, 1.0, len(best)).columns("relative_speed")
        found.append({**first, **itself, "verdict": CROWDED if alone else FASTEST})
        found += slower
    return pd.DataFrame(found, columns=[*columns, *SPEEDS, "verdict"])


def _verdict(ratio: bootstrap.Estimate) -> str:
    if not ratio.has_interval:
        return TOO_FEW
    return NO_DIFFERENCE if ratio.contains(1.0) else SLOWER


def filled(campaign: Campaign, trials: pd.DataFrame,
           speeds: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Let a tier that was refused as the same as another one show and rank that one's row.

    Returns the rows, with a column `same` that names the other tier or is empty, and their speeds.
    A row may stand in several tiers, so its trial is not unique among them.
    """
    same = trials["reason"].str.extract(SAME_TIER)[0].where(trials["status"] == "unsupported")
    names, workloads = contestants(trials), trials[ACROSS_TIERS]
    rows = trials.assign(same="").to_dict("records")
    for place, tier in enumerate(same):
        if pd.isna(tier):
            continue
        alike = (names == names.iloc[place]) & (trials["tuning"] == tier)
        alike &= (trials["status"] == "ok") & (workloads == workloads.iloc[place]).all(axis=1)
        if alike.any():
            found = trials[alike].to_dict("records")[0]
            rows[place] = {**found, "tuning": trials["tuning"].iloc[place], "same": tier}
    shown = pd.DataFrame(rows, index=trials.index, columns=[*trials.columns, "same"])
    shown = shown.astype(trials.dtypes.to_dict())
    return shown, relative(campaign, shown) if (shown["same"] != "").any() else speeds


def at_best(trials: pd.DataFrame) -> pd.DataFrame:
    """Return each contestant's fastest verified row of its tiers; none where all have one tier."""
    ranked = trials[trials["verified"] == "yes"]
    if ranked["tuning"].nunique() < 2:
        return ranked.iloc[:0]
    keys = [contestants(trials)[ranked.index], *ACROSS_TIERS]
    fastest = ranked.groupby(keys, sort=False, dropna=False)["step_seconds"].idxmin()
    return ranked.loc[fastest]


def contestants(trials: pd.DataFrame) -> "pd.Series[str]":
    """Name each row's framework, with its release and strategy where the table has several of them.

    A row of a live comparison is followed by its side, A or B; one on nodes by how many, where
    others have as many devices on one.
    """
    several = trials.groupby("framework")["release"].transform("nunique") > 1
    releases = trials["framework"] + " " + trials["release"].fillna("")
    names = trials["framework"].where(~several, releases)
    strategies = trials["strategy"].where(trials["strategy"] != "")
    several = strategies.groupby(trials["framework"]).transform("nunique") > 1
    names = names.where(~several, (names + " " + trials["strategy"]).str.strip())
    if "nodes" in trials and trials.loc[trials["devices"] > 1, "nodes"].nunique() > 1:
        on = " on " + trials["nodes"].astype(str) + " nodes"
        names = names.where(trials["nodes"] == 1, names + on)
    return (names + " " + trials["side"]).str.strip() if "side" in trials else names


def series(trials: pd.DataFrame) -> "pd.Series[str]":
    """Name each row for a figure: its contestant and, where the table has several, its tuning."""
    names = trials["contestant"] if "contestant" in trials else contestants(trials)
    return names + " " + trials["tuning"] if trials["tuning"].nunique() > 1 else names


def marked(trials: pd.DataFrame) -> "pd.Series[str]":
    """Name each row's contestant, with a mark behind it if the row has a caveat."""
    names = contestants(trials)
    return names.where(trials["caveat"] == "", names + f" {MARK}")


def caveats(trials: pd.DataFrame) -> list[str]:
    """Return a note for each caveat, with the rows that have it: all of a network, or one by one.
    """
    table = trials.assign(contestant=contestants(trials), label=labels(trials))
    notes = []
    for caveat, rows in table[table["caveat"] != ""].groupby("caveat", sort=False):
        where = []
        for (contestant, network), own in rows.groupby(["contestant", "network"], sort=False):
            alike = (table["contestant"] == contestant) & (table["network"] == network)
            whole = len(own) > 1 and len(own) == alike.sum()
            where += [f"{contestant}, {network}"] if whole else list(own["label"])
        notes.append(f"{MARK} {caveat}: {'; '.join(where)}.")
    return notes


def is_marked(table: pd.DataFrame) -> bool:
    """Return whether a table of texts has a row with a caveat."""
    return any(MARK in str(cell) for cells in table.to_numpy() for cell in cells)


def unit_of_work(trials: pd.DataFrame) -> str:
    """Name what is timed: a call where all trials run trained networks, else a mini-batch."""
    return "call" if len(trials) and (trials["mode"] == "inference").all() else "mini-batch"


def throughout(trials: pd.DataFrame) -> str:
    """Say what all trials have in common, for the caption of a table."""
    parts = []
    for column in _constant(trials):
        value = trials[column].iloc[0]
        if column == "data" and value in DATA:
            parts.append(DATA[value])
        elif column == "tuning":
            parts.append(f"{value} tier")
        else:
            parts.append(one_setting(column, value))
    return ", ".join(filter(None, parts))


def setting(trial: "pd.Series[Any]", trials: pd.DataFrame, dropped: Iterable[str] = ()) -> str:
    """Name a row's group by its network, its batch and what else varies in the table.

    Columns in `dropped` are left out.
    """
    silent = {*_constant(trials), *dropped, "network"}
    parts = [one_setting(column, trial[column]) for column in GROUP if column not in silent]
    return ", ".join([str(trial["network"]), *filter(None, parts)])


def labels(trials: pd.DataFrame) -> list[str]:
    """Name each row by its contestant and its group."""
    named = zip(contestants(trials), trials.iterrows(), strict=True)
    return [f"{name}, {setting(trial, trials)}" for name, (_, trial) in named]


def table(
        trials: pd.DataFrame, cells: Callable[["pd.Series[Any]"], dict[str, Any]],
        kept: Any = slice(None)) -> pd.DataFrame:
    """List the group and the contestant of each row that is `kept`, then what `cells` says of it.
    """
    shown = trials.assign(contestant=marked(trials))[kept]
    lines = [{**row[GROUP], "framework": row["contestant"], **cells(row)}
             for _, row in shown.iterrows()]
    return without_constants(pd.DataFrame(lines), trials)


def without_constants(table: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Drop the columns in which all trials of the campaign agree, and number the rows anew."""
    return table.drop(columns=_constant(trials), errors="ignore").reset_index(drop=True)


def one_setting(column: str, value: Any) -> str:
    """Write a setting, as in "2 devices"; nothing for a missing one or a framework's default."""
    if pd.isna(value) or (column == "threads" and value == 0):
        return ""
    text = SETTINGS.get(column, "{}").format(value)
    return text.removesuffix("s") if column in ("devices", "threads") and value == 1 else text


def _constant(trials: pd.DataFrame) -> list[str]:
    return [column for column in GROUP
            if column not in ALWAYS and trials[column].nunique(dropna=False) == 1]
