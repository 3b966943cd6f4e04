"""Tables of the site: cells with links and numbers to sort by, from campaigns read once.

What a table says is decided in `analysis.display.tables`; here its cells are led to the pages of the trials that they come from.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, number, span
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import tables
from analysis.trials import summary

WORKLOAD = ["framework", "network", "batch", "devices", "strategy", "device_kind", "threads", "precision", "tuning", "data"]
COMPARED = ("network", "batch", "framework", "device_kind", "threads", "precision", "data")
ROWS = ["network", "framework", "time (ms)", "95 % interval (ms)", "samples per second", "verdict", "batch", "precision", "tuning",
        "hardware", "devices", "strategy", "threads", "data", "release", "campaign"]

UNITS = dict((*TIME_UNITS, *BYTE_UNITS))
ABREAST = 4  # contestants that have room beside each other

Groups = list[tuple[str, pd.DataFrame]]


@dataclass(frozen=True)
class Cell:
    text: str
    href: str = ""
    value: float | None = None  # what it sorts by


@dataclass(frozen=True)
class Grid:
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Published:
    """One campaign, read once for all pages that show it. `rows` is its trials.csv, derived again."""

    name: str
    campaign: Campaign
    rows: pd.DataFrame
    speeds: pd.DataFrame
    pages: dict[str, str]  # of each trial the file of its page

    @property
    def title(self) -> str:
        return str(self.campaign.meta["suite"].get("title") or self.name)

    def hardware(self, device_kind: str) -> str:
        """The GPU, or the processor."""
        machine = self.campaign.meta["machine"]
        if device_kind == "cuda":
            return ", ".join(sorted({str(gpu.get("name")) for gpu in machine.get("gpus") or ()})) or "GPU"
        cpu = machine.get("cpu") or {}
        return f"{cpu.get('model', 'CPU')}, {cpu.get('allowed', cpu.get('logical', '?'))} cores"


def read(folder: Path) -> Published:
    """Read a campaign and derive its rows and speeds."""
    campaign = reader.read(folder)
    rows = summary.summarise(campaign)
    pages = {trial: re.sub(r"[^A-Za-z0-9.=+-]+", "-", trial) + ".html" for trial in rows["trial"]}
    return Published(folder.name, campaign, rows, ranking.relative(campaign, rows), pages)


def every_row(campaigns: Sequence[Published]) -> Grid:
    """All rows of all campaigns."""
    rows = []
    for published in campaigns:
        home = f"campaigns/{published.name}/"
        for _, row in published.rows.iterrows():
            page, ok = home + published.pages[row["trial"]], row["status"] == "ok"
            said = {
                **{name: cell(row[name]) for name in ROWS if name in row},
                "time (ms)": Cell(number(1e3 * row["step_seconds"]) if ok else str(row["status"]), page,
                                  1e3 * row["step_seconds"] if ok else None),
                "95 % interval (ms)": Cell(_interval(row) if ok else ""),
                "samples per second": cell(number(row["samples_per_second"]) if ok else ""),
                "verdict": Cell({"yes": "verified"}.get(row["verified"], "not verified") if ok else str(row["status"]), page),
                "hardware": Cell(published.hardware(row["device_kind"])),
                "threads": cell(row["threads"] if row["device_kind"] == "cpu" else ""),
                "campaign": Cell(published.name, home + "index.html"),
            }
            rows.append([said[name] for name in ROWS])
    return Grid(ROWS, rows)


def by_release(campaigns: Sequence[Published]) -> Groups:
    """Verified rows of each workload that several releases of a framework ran on the same hardware, oldest release first."""
    everything = pd.concat([published.rows.assign(
        campaign=published.name, hardware=published.rows["device_kind"].map(published.hardware)) for published in campaigns])
    groups = []
    for key, rows in everything[everything["verified"] == "yes"].groupby(["hardware", *WORKLOAD], dropna=False, sort=False):
        if rows["release"].nunique() > 1:
            rows = rows.sort_values("release", key=lambda column: column.map(_version), kind="stable")
            first = rows.iloc[0]
            setting = ranking.setting(first, everything, dropped=["devices"])
            several = f", {first['devices']} devices by {first['strategy']}" if first["devices"] > 1 else ""
            groups.append((f"{first['framework']}, {setting}{several}, {key[0]}", rows))
    return groups


def release_rows(groups: Groups, links: Mapping[tuple[str, str], str]) -> Grid:
    """The rows of `by_release`; `links` by campaign and trial."""
    rows = [[Cell(label), cell(row["release"]), Cell(number(1e3 * row["step_seconds"]), links[row["campaign"], row["trial"]],
                                                     1e3 * row["step_seconds"]), Cell(_interval(row)), Cell(row["campaign"])]
            for label, found in groups for _, row in found.iterrows()]
    return Grid(["workload", "release", "time (ms)", "95 % interval (ms)", "campaign"], rows)


def answer(published: Published) -> Grid:
    """The answer's table, each time with a link to its trial."""
    rows = published.rows.assign(contestant=ranking.contestants(published.rows))
    table = tables.answer(published.rows, published.speeds)
    made = grid(table)
    for place, (_, group) in enumerate(rows.groupby(ranking.GROUP, sort=False, dropna=False)):
        trial_of = dict(zip(group["contestant"], group["trial"], strict=True))
        for position, column in enumerate(made.columns):
            trial = trial_of.get(column.rpartition(" (")[0])
            if trial:
                shown = made.rows[place][position]
                made.rows[place][position] = Cell(shown.text, published.pages[trial], shown.value)
    contestants = rows["contestant"].nunique()
    return transposed(made, contestants) if contestants > max(ABREAST, len(made.rows)) else made


def transposed(table: Grid, contestants: int) -> Grid:
    """Turn an answer with many contestants so that these are its rows; the last row is the verdict."""
    first = len(table.columns) - 1 - contestants
    heads = [", ".join(f"{column} {cell.text}" if column != "network" else cell.text
                       for column, cell in zip(table.columns[:first], row, strict=False)) for row in table.rows]
    unit = table.columns[first].rpartition(" ")[2]
    names = [column.removesuffix(f" {unit}") for column in table.columns[first:]]
    rows = [[Cell(name), *(row[first + place] for row in table.rows)] for place, name in enumerate(names)]
    return Grid(["framework", *(f"{head} {unit}" for head in heads)], rows)


def comparison(table: pd.DataFrame, links: Mapping[str, str]) -> Grid:
    """The rows of a compare.csv, read as text; `links` leads from a trial to its page."""
    numbers = table[["ratio", "ratio_low", "ratio_high", "visible", "step_seconds_a", "step_seconds_b"]].apply(pd.to_numeric)
    shown = table[list(COMPARED)].assign(**{
        "A (ms)": (1e3 * numbers["step_seconds_a"]).map(number),
        "B (ms)": (1e3 * numbers["step_seconds_b"]).map(number), "B / A": numbers["ratio"].map(number),
        "interval": list(map(span, numbers["ratio_low"], numbers["ratio_high"])),
        "visible from (%)": (100 * numbers["visible"]).map(number), "verdict": table["verdict"], "reason": table["reason"]})
    made = grid(shown.loc[:, (shown != "").any()])
    for side in ("a", "b"):
        heading = f"{side.upper()} (ms)"
        for row, trial in zip(made.rows if heading in made.columns else [], table[f"trial_{side}"], strict=False):
            position = made.columns.index(heading)
            row[position] = Cell(row[position].text, links.get(trial, ""), row[position].value)
    return made


def campaign_list(campaigns: Sequence[Published]) -> Grid:
    rows = []
    for published in campaigns:
        found = published.rows
        listed = [", ".join(dict.fromkeys(map(str, found[column]))) for column in ("framework", "network", "precision", "tuning")]
        rows.append([
            Cell(published.name, f"campaigns/{published.name}/index.html"),
            Cell(" and ".join(published.hardware(kind) for kind in dict.fromkeys(found["device_kind"]))),
            *map(Cell, listed),
            cell(len(found)), cell(int((found["verified"] == "yes").sum())), Cell(str(published.campaign.meta["started"])[:10])])
    return Grid(["campaign", "hardware", "frameworks", "networks", "precisions", "tunings", "rows", "verified", "started"], rows)


def linked(table: pd.DataFrame, column: str, links: Sequence[str]) -> Grid:
    """A grid whose column that begins with `column` leads to `links`."""
    made = grid(table)
    position = next((number for number, name in enumerate(made.columns) if name.startswith(column)), None)
    if position is not None:
        for row, link in zip(made.rows, links, strict=True):
            row[position] = Cell(row[position].text, link, row[position].value)
    return made


def grid(table: pd.DataFrame) -> Grid:
    """The cells of a table, without links."""
    return Grid(list(map(str, table.columns)), [[cell(value) for value in row] for row in table.itertuples(index=False)])


def cell(value: Any) -> Cell:
    """A cell that sorts by its number where it begins with one, as "2.10 (2.08 to 2.11)" and "321 us" do."""
    text = "" if pd.isna(value) else str(value)
    found = re.match(r"([-+]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?:$|[ (,]([A-Za-z]*))", text)
    return Cell(text, value=float(found[1].replace(",", "")) * UNITS.get(found[2], 1.0) if found else None)


def _interval(row: "pd.Series[Any]") -> str:
    return span(1e3 * row["step_seconds_low"], 1e3 * row["step_seconds_high"])


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(release)))
