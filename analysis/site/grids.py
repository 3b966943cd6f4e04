"""Tables of the site: cells with links and numbers to sort by, from campaigns read once.

`analysis.report.tables` decides what a table says. Here its cells lead to the pages of trials.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare import calls, track
from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, ENDS, TIME_UNITS, number, span
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import tables
from analysis.trials import summary

WORKLOAD = ["framework", "network", "batch", "devices", "strategy", "device_kind", "threads",
            "precision", "tuning", "data", "mode"]
COMPARED = ("network", "batch", "framework", "device_kind", "threads", "precision", "data")
ROWS = ["network", "framework", "time (ms)", "95 % interval (ms)", "samples per second", "verdict",
        "batch", "precision", "tuning", "hardware", "devices", "strategy", "threads", "data",
        "release", "campaign"]
RELEASES = ["workload", "release", "time (ms)", "95 % interval (ms)", "campaign"]
CAMPAIGNS = ["campaign", "hardware", "frameworks", "networks", "precisions", "tunings", "rows",
             "verified", "started"]

UNITS = dict((*TIME_UNITS, *BYTE_UNITS))
SIDE_BY_SIDE = 4  # contestants that have room beside each other
NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?:$|[ (,]([A-Za-z]*))")
PLAIN = re.compile(r"-?\d[\d,]*(\.\d+)?")

Groups = list[tuple[str, pd.DataFrame]]


@dataclass(frozen=True)
class Cell:
    text: str
    href: str = ""
    value: float | None = None  # what it sorts by

    @property
    def is_told(self) -> bool:
        """Whether the page has to say the value: site.js reads that of a plain number itself."""
        return self.value is not None and not PLAIN.fullmatch(self.text)


@dataclass(frozen=True)
class Grid:
    columns: list[str]
    rows: list[list[Cell]]

    @property
    def is_marked(self) -> bool:
        """Whether a row has the mark of a caveat."""
        return any(ranking.MARK in cell.text for row in self.rows for cell in row)


@dataclass(frozen=True)
class Published:
    """One campaign, read once for all pages that show it. `rows` is its trials.csv, derived again.

    `pages` has the file of each trial's page.
    """

    name: str
    campaign: Campaign
    rows: pd.DataFrame
    speeds: pd.DataFrame
    pages: dict[str, str]

    @property
    def title(self) -> str:
        return str(self.campaign.meta["suite"].get("title") or self.name)

    def hardware(self, device_kind: str) -> str:
        return hardware(self.campaign.meta["machine"], device_kind)


def hardware(machine: Mapping[str, Any], device_kind: str) -> str:
    """Return the name of a machine's GPUs, or of its processor with the cores in use."""
    if device_kind == "cuda":
        names = {str(gpu.get("name")) for gpu in machine.get("gpus") or ()}
        return ", ".join(sorted(names)) or "GPU"
    cpu = machine.get("cpu") or {}
    return f"{cpu.get('model', 'CPU')}, {cpu.get('allowed', cpu.get('logical', '?'))} cores"


def read(folder: Path) -> Published:
    """Read a campaign and derive its rows and speeds."""
    campaign = reader.read(folder)
    rows = summary.summarise(campaign)
    pages = {trial: re.sub(r"[^A-Za-z0-9.=+-]+", "-", trial) + ".html" for trial in rows["trial"]}
    return Published(folder.name, campaign, rows, ranking.relative(campaign, rows), pages)


def every_row(campaigns: Sequence[Published], top: str = "") -> Grid:
    """Return all rows of all campaigns; `top` leads from the page to the site's first one."""
    rows = []
    for published in campaigns:
        home = f"{top}campaigns/{published.name}/"
        for _, row in published.rows.iterrows():
            page, ok = home + published.pages[row["trial"]], row["status"] == "ok"
            verdict = "verified" if row["verified"] == "yes" else "not verified"
            cells = {
                **{name: cell(row[name]) for name in ROWS if name in row},
                "framework": Cell(row["framework"] + f" {ranking.MARK}" * bool(row["caveat"])),
                "time (ms)": _time(row, page) if ok else Cell(str(row["status"]), page),
                "95 % interval (ms)": Cell(_interval(row) if ok else ""),
                "samples per second": cell(number(row["samples_per_second"]) if ok else ""),
                "tuning": cell(row["tuning"] + ", inference" * (row["mode"] == "inference")),
                "verdict": Cell(verdict if ok else str(row["status"]), page),
                "hardware": Cell(published.hardware(row["device_kind"])),
                "threads": cell(row["threads"] if row["device_kind"] == "cpu" else ""),
                "campaign": Cell(published.name, home + "index.html"),
            }
            rows.append([cells[name] for name in ROWS])
    return Grid(ROWS, rows)


def by_release(campaigns: Sequence[Published]) -> Groups:
    """Return the verified rows of each workload that several releases ran on the same hardware.

    The oldest release comes first.
    """
    if not campaigns:
        return []
    everything = pd.concat([
        published.rows.assign(campaign=published.name,
                              hardware=published.rows["device_kind"].map(published.hardware))
        for published in campaigns])
    verified = everything[everything["verified"] == "yes"]
    groups = []
    for key, rows in verified.groupby(["hardware", *WORKLOAD], dropna=False, sort=False):
        if rows["release"].nunique() > 1:
            rows = rows.sort_values("release", key=lambda names: names.map(track.order),
                                    kind="stable")
            first = rows.iloc[0]
            setting = ranking.setting(first, everything, dropped=["devices"])
            if first["devices"] > 1:
                setting += f", {first['devices']} devices by {first['strategy']}"
            groups.append((f"{first['framework']}, {setting}, {key[0]}", rows))
    return groups


def release_rows(groups: Groups, links: Mapping[tuple[str, str], str]) -> Grid:
    """Return the rows of `by_release`; `links` by campaign and trial."""
    rows = [[Cell(label), cell(row["release"] + f" {ranking.MARK}" * bool(row["caveat"])),
             _time(row, links[row["campaign"], row["trial"]]), Cell(_interval(row)),
             Cell(row["campaign"])]
            for label, found in groups for _, row in found.iterrows()]
    return Grid(RELEASES, rows)


def answer(published: Published) -> Grid:
    """Return the answer's table; each time leads to its trial."""
    rows, speeds = ranking.filled(published.campaign, published.rows, published.speeds)
    made = grid(tables.answer(rows, speeds))
    rows = rows.assign(contestant=ranking.contestants(rows))
    groups = rows.groupby(ranking.GROUP, sort=False, dropna=False)
    for cells, (_, group) in zip(made.rows, groups, strict=False):
        trial_of = dict(zip(group["contestant"], group["trial"], strict=True))
        for position, column in enumerate(made.columns):
            if trial := trial_of.get(column.rpartition(" (")[0]):
                cells[position] = replace(cells[position], href=published.pages[trial])
    contestants = rows["contestant"].nunique()
    wide = contestants > max(SIDE_BY_SIDE, len(made.rows))
    return transposed(made, contestants) if wide else made


def transposed(table: Grid, contestants: int) -> Grid:
    """Turn an answer with many contestants into one row each; the last row is the verdict."""
    first = len(table.columns) - 1 - contestants
    heads = [", ".join(f"{column} {cell.text}" if column != "network" else cell.text
                       for column, cell in zip(table.columns[:first], row, strict=False))
             for row in table.rows]
    unit = table.columns[first].rpartition(" ")[2]
    names = [column.removesuffix(f" {unit}") for column in table.columns[first:]]
    rows = [[Cell(name), *(row[first + place] for row in table.rows)]
            for place, name in enumerate(names)]
    return Grid(["framework", *(f"{head} {unit}" for head in heads)], rows)


def comparison(table: pd.DataFrame, links: Mapping[str, str]) -> Grid:
    """Return the rows of a compare.csv, read as text; `links` leads from a trial to its page."""
    numbers = table[["ratio", "ratio_low", "ratio_high", "visible", "step_seconds_a",
                     "step_seconds_b"]].apply(pd.to_numeric)
    shown = table[list(COMPARED)].assign(**{
        "A (ms)": (1e3 * numbers["step_seconds_a"]).map(number),
        "B (ms)": (1e3 * numbers["step_seconds_b"]).map(number),
        "B / A": numbers["ratio"].map(number),
        "interval": list(map(span, numbers["ratio_low"], numbers["ratio_high"])),
        "visible from (%)": (100 * numbers["visible"]).map(number),
        "verdict": table["verdict"],
        **{f"{name} of B / A": _of_calls(table, prefix)
           for name, prefix in calls.prefixes(table).items()},
        "reason": table["reason"], "caveat": table.get("caveat", "")})
    made = grid(shown.loc[:, (shown != "").any()])
    for side in ("A", "B"):
        if f"{side} (ms)" in made.columns:
            trials = table[f"trial_{side.lower()}"]
            _link(made, f"{side} (ms)", [links.get(trial, "") for trial in trials])
    return made


def _of_calls(table: pd.DataFrame, prefix: str) -> list[str]:
    """Write a quantile's ratio, interval and verdict of each row of a compare.csv."""
    ratios = table[[f"{prefix}ratio{end}" for end in ENDS]].apply(pd.to_numeric)
    return [f"{number(value)} ({span(low, high)}): {word}" if pd.notna(low) else word
            for (value, low, high), word in zip(
                ratios.itertuples(index=False), table[f"{prefix}verdict"], strict=True)]


def campaign_list(campaigns: Sequence[Published]) -> Grid:
    rows = []
    for published in campaigns:
        found = published.rows
        listed = [", ".join(dict.fromkeys(map(str, found[column])))
                  for column in ("framework", "network", "precision", "tuning")]
        kinds = dict.fromkeys(found["device_kind"])
        rows.append([
            Cell(published.name, f"campaigns/{published.name}/index.html"),
            Cell(" and ".join(map(published.hardware, kinds))), *map(Cell, listed),
            cell(len(found)), cell(int((found["verified"] == "yes").sum())),
            Cell(str(published.campaign.meta["started"])[:10])])
    return Grid(CAMPAIGNS, rows)


def linked(table: pd.DataFrame, column: str, links: Sequence[str]) -> Grid:
    """Return a grid whose column that begins with `column` leads to `links`."""
    made = grid(table)
    name = next((name for name in made.columns if name.startswith(column)), None)
    if name is not None:
        _link(made, name, links)
    return made


def grid(table: pd.DataFrame) -> Grid:
    """Return the cells of a table, without links."""
    rows = [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return Grid(list(map(str, table.columns)), rows)


def cell(value: Any) -> Cell:
    """Return a cell that sorts by its first number, as in "2.10 (2.08 to 2.11)" and "321 us"."""
    text = "" if pd.isna(value) else str(value)
    found = NUMBER.match(text)
    if not found:
        return Cell(text)
    return Cell(text, value=float(found[1].replace(",", "")) * UNITS.get(found[2], 1.0))


def _link(made: Grid, column: str, links: Sequence[str]) -> None:
    position = made.columns.index(column)
    for row, link in zip(made.rows, links, strict=True):
        row[position] = replace(row[position], href=link)


def _time(row: "pd.Series[Any]", page: str) -> Cell:
    return Cell(number(1e3 * row["step_seconds"]), page, 1e3 * row["step_seconds"])


def _interval(row: "pd.Series[Any]") -> str:
    return span(1e3 * row["step_seconds_low"], 1e3 * row["step_seconds_high"])
