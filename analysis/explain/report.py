"""Writes a gap that was explained: explain.html, explain.md, the waterfall, two tables as CSV."""

from functools import partial
from pathlib import Path

import pandas as pd
from rich.table import Table

from analysis.display import page, provenance, terminal
from analysis.display.numbers import number, percent, signed, span
from analysis.display.page import Notes, Page, Section, Text, tabled
from analysis.explain import words
from analysis.explain.gap import Gap
from analysis.explain.waterfall import waterfall
from analysis.records.reader import Campaign
from analysis.trials import caveats
from analysis.trials.breakdown import RESIDUAL

HOW_TO_READ = (
    "Every moment of a {work} counts once. Computing hides collectives and copies that run beside "
    "it; activities of one kind that run together share the moment. The parts of each side sum to "
    "its timed {work}, so their differences sum to the difference. Idle time is the timed {work} "
    "less the trace's busy time, and at most the idle time of the trace. The residual is the rest.")


def write(gap: Gap, campaigns: list[Campaign], out: Path) -> list[Path]:
    """Write the explanation into `out` and return every path, the page last. Raises OSError.

    `campaigns` hold the two trials.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = {"explain": gap.parts, "explain_details": gap.details}
    for name, table in tables.items():
        table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
    return [*(out / f"{name}.csv" for name in tables),
            *page.write(_page(gap, campaigns), out, "explain")]


def terminal_table(gap: Gap) -> Table:
    """Make the table of the parts; `words.sentences` belong below it."""
    shown = parts(gap)
    return terminal.table(shown, f"A: {gap.a.name}, B: {gap.b.name}", tuple(shown.columns[1:]))


def parts(gap: Gap) -> pd.DataFrame:
    """List the parts of both steps from the largest difference down, then the residual and the sum.
    """
    rows = gap.parts.sort_values("difference_seconds", key=abs, ascending=False)
    residual = rows["class"] == RESIDUAL
    whole = pd.DataFrame([{
        "part": gap.unit_of_work, "seconds_a": gap.a.step_seconds, "seconds_b": gap.b.step_seconds,
        "difference_seconds": gap.difference.value, "share": 1.0}])
    table = pd.concat([rows[~residual], rows[residual], whole])
    shares = {"of the difference": table["share"].map(lambda it: percent(it, ".1f"))}
    return pd.DataFrame({"part": table["part"], **_times(gap, table),
                         **(shares if gap.is_seen else {})})


def details(gap: Gap) -> pd.DataFrame:
    """List products by arithmetic and transposition, and copies by direction."""
    keys = ["arithmetic", "transposition", "activity"]
    table = gap.details[(gap.details[keys] != "").any(axis=1)]
    names = table[["class", *keys]].rename(columns={"activity": "direction"})
    return names.assign(**_times(gap, table))


def phases(gap: Gap) -> pd.DataFrame:
    """List what each phase adds to the step on either side, with the interval of the difference."""
    unit, scale = gap.unit
    spans = [span(low / scale, high / scale)
             for low, high in zip(gap.phases["low"], gap.phases["high"], strict=True)]
    return gap.phases[["phase"]].assign(
        **_times(gap, gap.phases), **{f"95 % interval ({unit})": spans})


def _page(gap: Gap, campaigns: list[Campaign]) -> Page:
    a, b = gap.a.breakdown.trial, gap.b.breakdown.trial
    what = (f"Why {gap.b.name} and {gap.a.name} differ" if gap.is_seen else
            f"On what {gap.b.name} and {gap.a.name} spend their {gap.unit_of_work}s")
    title = f"{what}: {a['network']}, batch {a['batch']}, {a['precision']}"
    return Page(title, [
        Notes(words.sentences(gap)),
        page.Figure("explain", partial(waterfall, gap)),
        page.Table(parts(gap)),
        *(Text(caveat, note=True) for caveat in remarks(gap, campaigns)),
        Text(f"A is {gap.a.name} (`{a['trial']}`), B is {gap.b.name} (`{b['trial']}`).", note=True),
        *tabled("By phase", phases(gap),
                "What each phase adds to a step, timed as nested variants of it and not traced."),
        *tabled("Products by arithmetic and transposition, copies by direction", details(gap)),
        Section("How to read it", [Text(HOW_TO_READ.format(work=gap.unit_of_work))]),
        *(Section(f"Where the numbers of {campaign.meta['name']} come from",
                  provenance.parts(campaign.meta)) for campaign in campaigns),
    ])


def remarks(gap: Gap, campaigns: list[Campaign]) -> list[str]:
    """Return the caveats on the two trials, and that two frameworks are of different tiers."""
    found = {trial: caveat for campaign in campaigns
             for trial, caveat in caveats.by_trial(campaign).items()}
    sides = {side.name: side.breakdown.trial["trial"] for side in (gap.a, gap.b)}
    a, b = gap.a.breakdown.trial, gap.b.breakdown.trial
    mixed = all(a[key] != b[key] for key in ("framework", "tuning"))
    tiers = [f"A is {a['tuning']} and B is {b['tuning']}: a part of the difference is the tiers', "
             "not the frameworks'."] if mixed else []
    return tiers + [f"A caveat on {name}: {found[trial]}."
                    for name, trial in sides.items() if trial in found]


def _times(gap: Gap, table: pd.DataFrame) -> dict[str, list[str]]:
    """Write the times of both sides and their difference."""
    unit, scale = gap.unit
    columns = {f"A ({unit})": ("seconds_a", number), f"B ({unit})": ("seconds_b", number),
               f"B less A ({unit})": ("difference_seconds", signed)}
    return {heading: [write(value / scale) for value in table[column]]
            for heading, (column, write) in columns.items()}
