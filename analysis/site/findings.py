"""The finding of each folder of results in one sentence, from its records or published tables.

A finding claims no more than a table does: what too few processes measured is left undecided.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare import calls
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, SLOWER
from analysis.display import ranking
from analysis.display.numbers import TIME_UNITS, number, span, with_unit
from analysis.display.ranking import FASTEST
from analysis.records.packed import text_table
from analysis.site.grids import Published


def of_campaign(published: Published) -> str:
    """Say which framework is proven the fastest, in how many settings that several ran."""
    _, speeds = ranking.filled(published.campaign, published.rows, published.speeds)
    settings = speeds.groupby(ranking.GROUP, sort=False, dropna=False)
    groups = [group for _, group in settings if len(group) > 1]
    if not groups:
        return ""
    fastest = Counter(str(group["contestant"].iloc[0]) for group in groups
                      if set(group["verdict"]) == {FASTEST, "slower"})
    if not fastest:
        lowest = Counter(group["contestant"].iloc[0] for group in groups)
        named = ", ".join(f"{name} in {count}" for name, count in lowest.most_common())
        return f"No proven winner in {len(groups)} settings; lowest times: {named}."
    parts = [f"{name} is the fastest in {count}" for name, count in fastest.most_common()]
    if len(groups) > fastest.total():
        parts.append(f"no proven winner in {len(groups) - fastest.total()}")
    return f"Of {len(groups)} settings, {', '.join(parts)}."


def of_scaling(published: Published) -> str:
    """Say the best and the worst efficiency on the most devices."""
    scaled = text_table(published.campaign.folder / "tables" / "scaling.csv")
    if scaled.empty:
        return of_campaign(published)
    devices = scaled["devices"].astype(int)
    most = scaled[devices == devices.max()]
    most = most.sort_values("efficiency (%)", key=lambda column: column.map(_first_number))
    parts = [f"{row['framework']} {row['network']} {row['speed-up']} times one device ({which})"
             for which, row in (("best", most.iloc[-1]), ("worst", most.iloc[0]))]
    return f"On {most['devices'].iloc[0]} devices: {'; '.join(parts)}."


def of_strategies(published: Published) -> str:
    """Say the fastest strategy of each network on the most devices, and how slow the slowest is."""
    rows = published.rows[published.rows["verified"] == "yes"]
    rows = rows[rows["devices"] == rows["devices"].max()]
    parts = []
    for network, group in rows.groupby("network", sort=False):
        group = group.sort_values("step_seconds")
        best, worst = group.iloc[0], group.iloc[-1]
        factor = number(worst["step_seconds"] / best["step_seconds"])
        parts.append(f"{network}: {best['strategy']} {with_unit(best['step_seconds'], TIME_UNITS)} "
                     f"a step, {worst['strategy']} {factor} times that")
    return f"On {rows['devices'].iloc[0]} devices, {'; '.join(parts)}." if parts else ""


def of_speed_up(published: Published) -> str:
    """Say the smallest and the largest speedup of a GPU over the CPU."""
    table = text_table(published.campaign.folder / "tables" / "speed_up.csv")
    if table.empty:
        return ""
    values = table["speed-up"].map(_first_number)
    return f"The GPU is {number(values.min())} to {number(values.max())} times as fast as the CPU."


def of_comparison(folder: Path) -> str:
    """Say how many workloads became slower, and by how much.

    For a release compared with itself, say how many false alarms there were.
    """
    rows = pd.read_csv(folder / "compare.csv", keep_default_na=False, na_values=[""])
    rows = calls.measures(rows)
    changed = rows[rows["verdict"].isin([FASTER, SLOWER])].sort_values("ratio", ascending=False)
    if rows["repeat"].nunique() > 1:
        return (f"{len(changed)} false alarms in {len(rows)} comparisons of a release "
                "with itself.")
    parts = [f"{' '.join(filter(None, [row['network'], row['measure']]))} {_longer(row, 'ratio_')}"
             for _, row in changed.iterrows()]
    rows = rows[rows["measure"] == ""]
    quiet = (rows["verdict"] == NO_DIFFERENCE).sum()
    parts += [f"no difference seen in {quiet} of {len(rows)} workloads"] if quiet else []
    return f"{'; '.join(parts) or 'Nothing could be compared'}."


def of_bisection(folder: Path) -> str:
    """Say each release's last verdict."""
    rows = pd.read_csv(folder / "bisect.csv", dtype={"release": str})
    measures = rows.get("measure", pd.Series("", rows.index)).fillna("")
    said = {"regressed": "slower", "sound": "not slower"}
    rows = rows.assign(where=measures.map(lambda name: f" in {name}" if name else ""))
    parts = [f"{row['release']} is {said.get(row['verdict'], row['verdict'])}{row['where']}: "
             f"{_longer(row)}"
             for _, row in rows.drop_duplicates("release", keep="last").iterrows()]
    return f"{'; '.join(parts)}."


def judged(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the verdicts on honest runners of a folder, and those on planted faults."""
    rows = text_table(folder / "verdicts.csv")
    honest = rows["fault"] == "none" if "fault" in rows else pd.Series(True, rows.index)
    return rows[honest], rows[~honest]


def refused(faulty: pd.DataFrame) -> str:
    """Say how many planted faults the proof refused."""
    return f"{(faulty['verdict'] == 'different').sum()} of {len(faulty)} planted faults refused"


def of_verdicts(folder: Path) -> str:
    """Say how many honest rows passed the proof, which differ, and how many faults it refused."""
    rows, faulty = judged(folder)
    count = rows["verdict"].value_counts()
    others = rows[~rows["verdict"].isin(["same", "unsupported"])]
    text = f"{count.get('same', 0)} of {len(rows)} rows are the same"
    if "unsupported" in count:
        text += f", {count['unsupported']} unsupported"
    if len(others):
        named = dict.fromkeys(others["framework"] + " " + others["network"])
        text += f", different or failed: {', '.join(named)}"
    return f"{text}; {refused(faulty)}." if len(faulty) else text + "."


def of_explanation(folder: Path) -> str:
    """Return the first sentences of an explanation: the difference, and its largest part."""
    text = (folder / "explain.md").read_text(encoding="utf-8")
    return " ".join(re.findall(r"^- (.+)$", text.partition("##")[0], re.MULTILINE)[:2])


def of_study(folder: Path, study: str) -> str:
    """Say what a study's main table shows, or the sentence that the study states itself."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    if study == "aggregation":
        return text.split("\n\n")[1].strip()
    if study == "attention":
        return text.split("\n\n")[2].strip()
    if gains := re.findall(r"Largest gain in .+?\.(?= |$)", text, re.MULTILINE):
        return f"FFT against the best other algorithm: {' '.join(gains)}"
    for name, say in TABLES.items():
        table = text_table(folder / "tables" / f"{name}.csv")
        if len(table):
            return say(table)
    return ""


def _article(table: pd.DataFrame) -> str:
    here = table[table["where"] == "here"]
    return "; ".join(f"{row['precision']}: with the transposed operand {row['NT / NN']} times "
                     "as long as without" for _, row in here.iterrows()) + "."


def _networks(table: pd.DataFrame) -> str:
    return "; ".join(f"{row['network']} {row['precision']}: the best layouts would save "
                     f"{row['the best would save']}" for _, row in table.iterrows()) + "."


def _strategies(table: pd.DataFrame) -> str:
    saved = "the fastest saves of the library's first"
    best = table.sort_values(saved, key=lambda column: column.map(_first_number)).iloc[-1]
    return (f"The fastest algorithms save up to {best[saved]} of the library's first choice "
            f"({best['network']}, {best['math']}).")


def _layers(table: pd.DataFrame) -> str:
    counts = table["fastest"].replace("", "not compared").value_counts()
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"Fastest in {len(table)} layers: {listed}."


TABLES: dict[str, Callable[[pd.DataFrame], str]] = {
    "article": _article, "networks": _networks, "strategies": _strategies, "layers": _layers}


def _longer(row: "pd.Series[Any]", prefix: str = "") -> str:
    interval = span(row[f"{prefix}low"], row[f"{prefix}high"])
    return f"{number(row['ratio'])} times as long ({interval})"


def _first_number(text: Any) -> float:
    found = re.match(r"-?[\d,]*\.?\d+", str(text))
    return float(found[0].replace(",", "")) if found else float("nan")
