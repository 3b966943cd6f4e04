"""The leaderboard: which framework is the fastest for a network on some hardware, proven.

A board is for one hardware, number of devices, precision and phase. It has a line for each workload
and a cell for each framework. A line comes from one campaign, whose frameworks ran interleaved. If
several campaigns have the workload, the line is of the one in which frameworks come closest to
their best. A framework enters with its fastest tier, strategy and release. Rows that were not
proven, or that have a caveat, have no rank.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pandas as pd

from analysis.display import palette, ranking
from analysis.display.numbers import number, percent, ratio, span
from analysis.records.reader import Campaign, infers
from analysis.site.grids import Published
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Times
from analysis.trials import effort, phases
from analysis.trials.summary import times_of

Timing = Callable[[Campaign, str], list[Times]]
# Hardware, devices, precision, phase.
Key = tuple[str, int, str, str]

# Name of a phase: the variant of the step in phases.csv, or nothing for the whole step.
PHASES = {"training step": "", "forward pass": "F", "forward and backward pass": "FB"}
# Of campaigns that run trained networks.
CALLS = {"inference": ""}
WORKLOAD = ["network", "batch", "data"]
WEAK = 0.05  # a proof that lets a larger fault through has another colour
FIRST_EDITION = ("Proven by the first edition of the proof: loss, gradients and trained parameters "
                 "agree with the reference. It does not state its strength.")


@dataclass(frozen=True)
class Cell:
    """A framework on a workload. Without a `rate` it has no rank, and `state` says why."""

    framework: str
    href: str
    state: str
    detail: str
    rate: float = 0.0
    ratio: str = ""
    share: float = 0.0
    ends: tuple[float, float] | None = None
    caveat: str = ""
    badge: str = ""
    weak: bool = False
    strength: str = ""
    processes: int = 0

    @property
    def rate_text(self) -> str:
        return number(self.rate)

    @property
    def colour(self) -> str:
        return palette.FRAMEWORKS.get(self.framework, palette.OTHER)[0]

    @property
    def rank(self) -> str:
        """What the cell shows as its rank: fastest, or its share of that speed."""
        if self.share == 1:
            return "fastest"
        return f"{self.ratio}, {self.state}" if self.state == ranking.NO_DIFFERENCE else self.ratio


@dataclass(frozen=True)
class Line:
    """A workload, its cells in the order of the board's frameworks, and its answer in words."""

    network: str
    setting: str
    campaign: str
    day: str
    cells: list[Cell | None]
    answer: str

    @property
    def ranked(self) -> list[Cell]:
        return _by_rate(cell for cell in self.cells if cell)

    @property
    def processes(self) -> int:
        """The fewest processes behind a ranked row; more than the minimum effort count as it."""
        return min((cell.processes for cell in self.ranked), default=0)

    @property
    def effort(self) -> str:
        """What readers are told of too few processes, or nothing."""
        few = self.processes < effort.PROCESSES
        return f"{self.processes} processes a row" if few and self.ranked else ""

    @property
    def winner(self) -> str:
        """The framework that is proven faster than each other one here, or nothing."""
        return _winner(self.ranked)


@dataclass(frozen=True)
class Board:
    hardware: str
    devices: int
    precision: str
    phase: str
    frameworks: list[str]
    lines: list[Line] = field(default_factory=list)
    weak: str = f"{100 * WEAK:g} %"

    @property
    def compared(self) -> int:
        """How many rows are ranked beside another one."""
        return sum(len(line.ranked) for line in self.lines if len(line.ranked) > 1)

    @property
    def summary(self) -> str:
        """Say in how many workloads each framework is the fastest."""
        wins = Counter(filter(None, (line.winner for line in self.lines)))
        parts = [f"{name}{'' if place else ' is the fastest'} in {count}"
                 for place, (name, count) in enumerate(wins.most_common())]
        if rest := len(self.lines) - wins.total():
            parts.append(f"no proven winner in {rest}")
        count = len(self.lines)
        return f"Of {count} workload{'s' if count > 1 else ''}, {', '.join(parts)}."


def boards(campaigns: Sequence[Published]) -> list[Board]:
    """Return the boards of campaigns that compare frameworks; those with most rows come first."""
    found: dict[Key, dict[tuple[Any, ...], list[Line]]] = {}
    for published in campaigns:
        if (published.campaign.folder / "compare.csv").exists():
            continue
        calls = any(map(infers, published.campaign.trials))
        for phase, variant in (CALLS if calls else PHASES).items():
            for key, workload, line in _lines(published, phase, variant):
                found.setdefault(key, {}).setdefault(workload, []).append(line)
    made = []
    for key, workloads in found.items():
        lines = [shown for each in workloads.values() if (shown := _shown(each))]
        names = sorted({cell.framework for line in lines for cell in line.cells if cell},
                       key=lambda name: (palette.place(name), name))
        lines.sort(key=lambda line: (-len(line.ranked), line.network, line.setting))
        made.append(Board(*key, names, [_spread(line, names) for line in lines]))
    made = [board for board in made if any(line.ranked for line in board.lines)]
    return sorted(made,
                  key=lambda board: (not board.hardware.startswith("NVIDIA"), -board.compared))


def filters(made: Sequence[Board]) -> dict[str, list[str]]:
    """Return the choices of each filter, in the order of the boards."""
    found = {name: list(dict.fromkeys(str(getattr(board, name)) for board in made))
             for name in ("hardware", "devices", "precision", "phase")}
    networks = sorted({line.network for board in made for line in board.lines})
    return {**found, "network": ["all", *networks]}


def _lines(published: Published, phase: str,
           variant: str) -> Iterable[tuple[Key, tuple[Any, ...], Line]]:
    """Yield (what makes the board; workload; line) of each workload of a campaign."""
    rows, timing = published.rows, cast(Timing, times_of)
    if variant:
        rows, timing = _of_variant(published, variant), partial(phases.times_of, variant=variant)
    ranked = _best(rows)
    speeds = ranking.relative(published.campaign, ranked, ranking.ACROSS_TIERS, timing)
    speeds = speeds.set_index("trial")
    for _, group in rows.groupby(ranking.ACROSS_TIERS, sort=False, dropna=False):
        first = group.iloc[0]
        own = ranked[ranked["trial"].isin(group["trial"])].sort_values("step_seconds")
        cells = [_ranked(published, row, speeds.loc[row["trial"]]) for _, row in own.iterrows()]
        named = {cell.framework for cell in cells}
        cells += [_unranked(published, refused) for name, refused in group.groupby("framework")
                  if name not in named]
        key = (published.hardware(first["device_kind"]), int(first["devices"]),
               str(first["precision"]), phase)
        day = str(published.campaign.meta["started"])[:10]
        line = Line(str(first["network"]), _setting(first), published.name, day, list(cells),
                    _answer(cells))
        # Old campaigns state threads of GPU rows too; they say how the host was used.
        threads = first["threads"] if first["device_kind"] == "cpu" else 0
        yield key, (*first[WORKLOAD], threads), line


def _shown(lines: Sequence[Line]) -> Line | None:
    """Return the line in which frameworks come closest to their best.

    Closeness is the mean share of each framework's best rate in any line, rounded to 1 %; a missing
    framework counts 0. Of equally close lines it is the one with more processes, then the newest. A
    campaign of one framework only says how fast that can be.
    """
    best: dict[str, float] = {}
    for cell in (cell for line in lines for cell in line.ranked):
        best[cell.framework] = max(cell.rate, best.get(cell.framework, 0.0))

    def closeness(line: Line) -> float:
        shares = sum(cell.rate / best[cell.framework] for cell in line.ranked)
        return round(shares / max(1, len(best)), 2)

    several = [line for line in lines if len(line.cells) > 1]
    return max(several, key=lambda line: (closeness(line), line.processes, line.day), default=None)


def _of_variant(published: Published, variant: str) -> pd.DataFrame:
    """Return the rows whose phases were timed, with the variant's time as that of the step."""
    timed = published.campaign.phases
    rows = published.rows[published.rows["trial"].isin(timed["trial"])]
    times = {trial: phases.times_of(published.campaign, trial, variant) for trial in rows["trial"]}
    found = {trial: bootstrap.estimate(own).columns("step_seconds")
             for trial, own in times.items() if own}
    rows = rows[rows["trial"].isin(found)]
    return rows.assign(**pd.DataFrame([found[trial] for trial in rows["trial"]], rows.index))


def _best(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each framework's fastest row among those that are proven.

    A caveat that keeps the row verified says that it could be faster. So such a row may win its
    workload, but it loses to no other one: where it is not the fastest, it is left out.
    """
    proven = rows[rows["verified"] == "yes"]
    of_workload = proven.groupby(ranking.ACROSS_TIERS, sort=False, dropna=False)["step_seconds"]
    ranked = proven[(proven["caveat"] == "") | proven.index.isin(of_workload.idxmin())]
    keys = ["framework", *ranking.ACROSS_TIERS]
    return ranked.loc[ranked.groupby(keys, sort=False, dropna=False)["step_seconds"].idxmin()]


def _ranked(published: Published, row: "pd.Series[Any]", speed: "pd.Series[Any]") -> Cell:
    rate = float(row["global_batch"]) / row["step_seconds"]
    share, low, high = (float(speed[name]) for name in ranking.SPEEDS)
    interval = f" ({span(low, high)})" if share != 1 and not math.isnan(low) else ""
    strategy = row["strategy"] if row["devices"] > 1 else ""
    detail = ", ".join(filter(None, [str(row["release"]), row["tuning"], strategy]))
    badge, weak, strength = _proof(row)
    return Cell(row["framework"], _page(published, row), str(speed["verdict"]), detail, rate,
                number(share) + interval, share, (low, high) if interval else None, row["caveat"],
                badge, weak, strength, min(int(row["processes"]), effort.PROCESSES))


def _unranked(published: Published, rows: pd.DataFrame) -> Cell:
    """Return the cell of a framework that has no proven row of a workload."""
    measured = rows[rows["status"] == "ok"]
    row = (measured if len(measured) else rows).iloc[0]
    state = str(row["status"])
    if state == "ok":
        state = "has a caveat" if row["verified"] == "yes" or row["caveat"] else "not proven"
    reason = row["caveat"] or row["reason"]
    return Cell(row["framework"], _page(published, row), state, str(reason))


def _proof(row: "pd.Series[Any]") -> tuple[str, bool, str]:
    """Return a row's badge, whether it is weak, and the smallest faults that it stands for."""
    if row["mode"] == "inference":
        return (f"outputs to {row['output_limit']:.0e}", False,
                "Proven the same. The proof refuses outputs that are off by more than "
                f"{row['output_limit']:.2g} of how they differ between inputs.")
    rate, scale, frozen = (row[name] for name in (
        "proof_rate_error", "proof_gradient_error", "proof_frozen_share"))
    if pd.isna(rate) and pd.isna(scale):
        return "proven, first edition", False, FIRST_EDITION
    badge = f"proven: rate {_least(rate)}, gradients {_least(scale)}"
    means = (f"Proven the same. The proof refuses a learning rate that is wrong by "
             f"{_least(rate)} and gradients that are wrong by {_least(scale)}; "
             f"{percent(frozen) or 'an unknown share'} of the parameters could stand still unseen.")
    return badge, not (rate < WEAK and scale < WEAK), means


def _least(share: float) -> str:
    return "any share (it sees none)" if pd.isna(share) or share >= 1 else percent(share, ".2g")


def _answer(cells: Sequence[Cell]) -> str:
    """Say which framework is the fastest and by how much, or that this is not known."""
    ranked = _by_rate(cells)
    if len(ranked) < 2:
        return f"Only {ranked[0].framework} is proven." if ranked else "None is proven."
    best, second = ranked[:2]
    if not _winner(ranked):
        close = [cell.framework for cell in ranked[1:] if cell.state != ranking.SLOWER]
        return f"No proven winner: {best.framework} against {', '.join(close)}."
    low, high = second.ends or (second.share, second.share)
    times = ratio(1 / second.share, 1 / high, 1 / low)
    return f"{best.framework} is the fastest: {times} times as fast as {second.framework}."


def _by_rate(cells: Iterable[Cell]) -> list[Cell]:
    return sorted((cell for cell in cells if cell.rate), key=lambda cell: -cell.rate)


def _winner(ranked: Sequence[Cell]) -> str:
    decided = len(ranked) > 1 and all(cell.state == ranking.SLOWER for cell in ranked[1:])
    return ranked[0].framework if decided else ""


def _setting(row: "pd.Series[Any]") -> str:
    shown = {"batch": True, "data": row["data"] != "device", "threads": row["device_kind"] == "cpu"}
    parts = [ranking.one_setting(column, row[column]) for column in shown if shown[column]]
    return ", ".join(filter(None, parts))


def _page(published: Published, row: "pd.Series[Any]") -> str:
    return f"campaigns/{published.name}/{published.pages[row['trial']]}"


def _spread(line: Line, names: Sequence[str]) -> Line:
    own = {cell.framework: cell for cell in line.cells if cell}
    return replace(line, cells=[own.get(name) for name in names])
