"""The one sentence that the site's first page says of each folder of results, from its records or its published tables.

A finding claims no more than a table does: what too few processes measured is not decided, and says so.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, SLOWER
from analysis.display import ranking
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.display.ranking import FASTEST
from analysis.records import packed
from analysis.site.tables import Published


def of_campaign(published: Published) -> str:
    """Which framework is shown to be the fastest, in how many settings that several frameworks ran."""
    groups = [group for _, group in published.speeds.groupby(ranking.GROUP, sort=False, dropna=False) if len(group) > 1]
    shown = Counter(str(group["contestant"].iloc[0]) for group in groups if set(group["verdict"]) == {FASTEST, "slower"})
    if groups and not shown:
        shortest = Counter(group["contestant"].iloc[0] for group in groups)
        ahead = ", ".join(f"{name} in {count}" for name, count in shortest.most_common())
        return f"In none of {len(groups)} settings is one shown to be the fastest; the shortest times are those of {ahead}."
    said = [f"{name} is the fastest in {count}" for name, count in shown.most_common()]
    said += [f"in {len(groups) - shown.total()} no single one is shown to be"] if len(groups) > shown.total() else []
    return f"Of {len(groups)} settings {', '.join(said)}." if groups else ""


def of_scaling(published: Published) -> str:
    """The best and the worst efficiency on the most devices."""
    scaled = _table(published.campaign.folder / "tables" / "scaling.csv")
    if scaled.empty:
        return of_campaign(published)
    most = scaled[scaled["devices"].astype(int) == scaled["devices"].astype(int).max()]
    most = most.sort_values("efficiency (%)", key=lambda column: column.map(_first_number))
    words = [f"{row['framework']} {row['network']} {row['speed-up']} times one device ({which})"
             for which, row in (("best", most.iloc[-1]), ("worst", most.iloc[0]))]
    return f"On {most['devices'].iloc[0]} devices: {'; '.join(words)}."


def of_strategies(published: Published) -> str:
    """The fastest strategy of each network on the most devices, and what the slowest costs beside it."""
    rows = published.rows[published.rows["verified"] == "yes"]
    rows = rows[rows["devices"] == rows["devices"].max()]
    said = []
    for network, group in rows.groupby("network", sort=False):
        group = group.sort_values("step_seconds")
        best, worst = group.iloc[0], group.iloc[-1]
        unit, scale = best_unit([best["step_seconds"]], TIME_UNITS)
        said.append(f"{network}: {best['strategy']} {number(best['step_seconds'] / scale)} {unit} a step, {worst['strategy']} "
                    f"{number(worst['step_seconds'] / best['step_seconds'])} times that")
    return f"On {rows['devices'].iloc[0]} devices, {'; '.join(said)}." if said else ""


def of_speed_up(published: Published) -> str:
    """From how many to how many times as fast a GPU is."""
    values = _table(published.campaign.folder / "tables" / "speed_up.csv").get("speed-up", pd.Series(dtype=str)).map(_first_number)
    return f"The GPU is {number(values.min())} to {number(values.max())} times as fast as the processor." if len(values) else ""


def of_comparison(folder: Path) -> str:
    """How many workloads became slower, and by how much; of a release beside itself, how many false alarms there were."""
    rows = pd.read_csv(folder / "compare.csv", keep_default_na=False, na_values=[""])
    if rows["repeat"].nunique() > 1:
        alarms = rows["verdict"].isin([FASTER, SLOWER]).sum()
        return f"{alarms} false alarms in {len(rows)} comparisons of a release with itself."
    changed = rows[rows["verdict"].isin([FASTER, SLOWER])].sort_values("ratio", ascending=False)
    words = [f"{row['network']} {number(row['ratio'])} times as long ({span(row['ratio_low'], row['ratio_high'])})"
             for _, row in changed.iterrows()]
    quiet = (rows["verdict"] == NO_DIFFERENCE).sum()
    words += [f"no difference seen in {quiet} of {len(rows)} workloads"] if quiet else []
    return f"{'; '.join(words) or 'Nothing could be compared'}."


def of_bisection(folder: Path) -> str:
    """Each release's last verdict."""
    rows = pd.read_csv(folder / "bisect.csv", dtype={"release": str}).drop_duplicates("release", keep="last")
    word = {"regressed": "slower", "sound": "not slower"}
    said = [f"{row['release']} is {word.get(row['verdict'], row['verdict'])}: {number(row['ratio'])} times as long "
            f"({span(row['low'], row['high'])})" for _, row in rows.iterrows()]
    return f"{'; '.join(said)}."


def of_verdicts(folder: Path) -> str:
    """How many pairs of framework and network were proved to be the same, and which differ."""
    rows = pd.read_csv(folder / "verdicts.csv", keep_default_na=False)
    others = rows[rows["verdict"] == "different"]
    named = ", ".join(others["framework"] + " " + others["network"])
    refused = (rows["verdict"] == "unsupported").sum()
    return (f"{(rows['verdict'] == 'same').sum()} of {len(rows)} pairs of framework and network are the same"
            + (f", {refused} unsupported" if refused else "") + (f", different: {named}." if named else "."))


def of_explanation(folder: Path) -> str:
    """The first sentences of an explanation: the difference, and its largest part."""
    text = (folder / "explain.md").read_text(encoding="utf-8")
    return " ".join(re.findall(r"^- (.+)$", text.partition("##")[0], re.MULTILINE)[:2])


def of_study(folder: Path) -> str:
    """What a study's main table says; of aggregation and of the sweep, their own sentence."""
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))["study"]
    text = (folder / "report.md").read_text(encoding="utf-8")
    if study == "aggregation":
        return text.split("\n\n")[1].strip()
    if gains := re.findall(r"Largest gain in .+?\.(?= |$)", text, re.MULTILINE):
        return f"FFT against the best other algorithm: {' '.join(gains)}"
    for name, say in TABLES.items():
        table = _table(folder / "tables" / f"{name}.csv")
        if len(table):
            return say(table)
    return ""


def _article(table: pd.DataFrame) -> str:
    here = table[table["where"] == "here"]
    return "{}.".format("; ".join(f"{row['precision']}: with the transposed operand {row['NT / NN']} times as long as without"
                               for _, row in here.iterrows()))


def _networks(table: pd.DataFrame) -> str:
    return "{}.".format("; ".join(f"{row['network']} {row['precision']}: the best layouts would save {row['the best would save']}"
                               for _, row in table.iterrows()))


def _strategies(table: pd.DataFrame) -> str:
    saved = "the fastest saves of the library's first"
    best = table.sort_values(saved, key=lambda column: column.map(_first_number)).iloc[-1]
    return f"The fastest algorithms save up to {best[saved]} of the library's first choice ({best['network']}, {best['math']})."


def _layers(table: pd.DataFrame) -> str:
    counts = table["fastest"].replace("", "not compared").value_counts()
    return f"Fastest in {len(table)} layers: {', '.join(f'{name} {count}' for name, count in counts.items())}."


TABLES: dict[str, Callable[[pd.DataFrame], str]] = {
    "article": _article, "networks": _networks, "strategies": _strategies, "layers": _layers}


def _table(file: Path) -> pd.DataFrame:
    """A published table as text; empty where there is none."""
    found = packed.find(file)
    return pd.read_csv(found, dtype=str, keep_default_na=False) if found.exists() else pd.DataFrame()


def _first_number(text: Any) -> float:
    found = re.match(r"-?[\d,]*\.?\d+", str(text))
    return float(found[0].replace(",", "")) if found else float("nan")
