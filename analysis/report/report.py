"""The report of one or several campaigns: report.html, report.md, tables as CSV, plots.

It opens with the answer and its plots. Then come the refused rows, the machine's concerns, further
tables, the environments and the method. It reads records and nothing else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from analysis.display import page, provenance, ranking, terminal
from analysis.display.page import Page, Part, Section, Text, tabled
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import (
    gpu_time,
    plots,
    reasons,
    roofline,
    scaling,
    scaling_plots,
    speed_up,
    tables,
)
from analysis.statistics import bootstrap
from analysis.trials import counters, phases, summary

# This many contestants still fit side by side in a terminal.
SIDE_BY_SIDE = 3
METHOD = (
    "Each trial runs in several processes, interleaved in random order. A process times windows of "
    "many steps, each between two synchronisations that wait for the updated parameters. A time is "
    "the median over processes of each process's median window. Its 95 % interval is a bootstrap "
    "that draws processes first and windows within them, widened for few processes; fewer than "
    f"{bootstrap.MINIMUM_PROCESSES} processes give none. If the interval of a ratio contains 1, no "
    "difference was seen.",
    "Only verified rows are ranked. In a verified row, the framework agreed with the reference in "
    "loss, gradients and trained parameters, it built the network's own number of parameters, and "
    "its losses agree with those of its other processes and of the other frameworks.",
)


@dataclass(frozen=True)
class Contents:
    """What the report shows of one campaign: tables and figures by the names of their files."""

    campaign: Campaign
    rows: pd.DataFrame
    tables: dict[str, pd.DataFrame]
    figures: dict[str, Figure]
    # Why rows on several devices have no speed-up; empty where they have, or where there are none.
    unscaled: str
    # Whether a trial on several devices was traced.
    several_traced: bool

    @property
    def title(self) -> str:
        return str(self.campaign.meta["suite"].get("title") or self.campaign.meta["name"])


def write(folders: Sequence[str | Path], out: str | Path, plots: bool = True) -> list[Path]:
    """Write the report of the campaigns in `folders` into `out` and return every path.

    Without `plots` the files of the plots are left out; the page still shows them. Raises
    BadRecords, OSError.
    """
    out = Path(out)
    shown = [contents(reader.read(folder)) for folder in folders]
    method = Section("Method", [Text(text) for text in METHOD])
    if len(shown) == 1:
        report = Page(shown[0].title, [*parts(shown[0]), method])
        written = dict(shown[0].tables)
    else:
        slugs = [f"{number}-{_slug(each.campaign.meta['name'])}-"
                 for number, each in enumerate(shown, start=1)]
        title = ", ".join(each.campaign.meta["name"] for each in shown)
        sections = [Section(each.title, parts(each, slug))
                    for slug, each in zip(slugs, shown, strict=True)]
        report = Page(title, [*sections, method])
        written = {f"{slug}{name}": table for slug, each in zip(slugs, shown, strict=True)
                   for name, table in each.tables.items()}
    return [*page.write_tables(written, out), *page.write(report, out, "report", images=plots)]


def terminal_table(campaign: Campaign) -> Table:
    """Make the table that ends a run: every trial with its time, or why it has none."""
    trials = summary.summarise(campaign)
    speeds = ranking.relative(campaign, trials)
    side_by_side = ranking.contestants(trials).nunique() <= SIDE_BY_SIDE
    frame = tables.answer(trials, speeds) if side_by_side else tables.listing(trials, speeds)
    table = terminal.table(frame, f"{campaign.meta['name']}: time per mini-batch")
    if not side_by_side:
        for place in range(1, len(frame)):
            table.rows[place - 1].end_section = bool(frame.iloc[place, 0])
    caption = [ranking.throughout(trials)]
    for row in tables.refused(trials).to_dict("records"):
        caption.append(f"{row['framework']}, {row['network']}, batch {row['batch']}: "
                       f"{row['verdict']}: {row['reason']}")
    table.caption = escape("\n".join(caption).strip())
    return table


def headline(trials: pd.DataFrame) -> str:
    """Say how many trials there are, and what came of them."""
    verified, status = trials["verified"] == "yes", trials["status"]
    counts = {"ranked": verified.sum(),
              "measured but not verified": ((status == "ok") & ~verified).sum(),
              "unsupported": (status == "unsupported").sum(), "failed": (status == "failed").sum()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(trials)} trials: {said}."


def contents(campaign: Campaign) -> Contents:
    """Derive every table and figure that the campaign's records allow."""
    trials = summary.summarise(campaign)
    speeds = ranking.relative(campaign, trials)
    found = {"answer": tables.answer(trials, speeds), "times": tables.times(trials, speeds),
             "memory": tables.memory(trials), "refused": tables.refused(trials),
             "remarks": tables.remarks(trials)}
    if trials[list(tables.TRAFFIC)].notna().any(axis=None):
        checks = {trial["trial"]: counters.cross_check(campaign, trial)
                  for trial in campaign.trials}
        found["traffic"] = tables.traffic(trials, checks)
    figures = {}
    pairs = speed_up.by_trial(campaign, trials)
    if len(pairs):
        found["speed_up"] = speed_up.table(pairs)
        figures["speed_up"] = speed_up.figure(pairs)
    times = gpu_time.by_class(campaign.kernels, trials)
    if len(times):
        found["gpu_time"] = gpu_time.table(times)
    if len(gaps := reasons.table(campaign, speeds)):
        found["reasons"] = gaps
    bounded = roofline.by_trial(campaign, trials)
    if len(bounded):
        found["limits"] = roofline.table(bounded)
    scaled, steps = scaling.curves(campaign, trials), phases.table(campaign, trials)
    if len(scaled):
        found["scaling"] = scaling.table(scaled)
        figures["throughput"] = scaling_plots.throughput(scaled)
        figures["efficiency"] = scaling_plots.efficiency(scaled)
    if len(best := scaling.winners(campaign, trials)):
        found["strategies"] = best
    if len(steps):
        found["phases"] = scaling.phase_table(steps)
    if steps[list(scaling.PARTS)].notna().any(axis=None):
        figures["phases"] = scaling_plots.phases(steps)
    if (trials["verified"] == "yes").any():
        figures["step_time"] = plots.by_batch(trials, "step_seconds")
    if (speeds["verdict"] != ranking.FASTEST).any():
        figures["relative_speed"] = plots.relative_speed(speeds)
    if (trials["status"] == "ok").any():
        figures["losses"] = plots.losses(trials, campaign.windows)
    for name, measure in (("peak_memory", "peak_memory_bytes"),
                          ("pcie_received", "pcie_rx_bytes_per_step"),
                          ("energy", "energy_joules_per_step")):
        if trials[measure].notna().any():
            figures[name] = plots.by_batch(trials, measure)
    if len(times):
        figures["gpu_time"] = gpu_time.figure(times)
    if len(bounded):
        figures["limits"] = roofline.figure(bounded)
    return Contents(campaign, trials, found, figures, scaling.why_not(trials, scaled),
                    bool((times["devices"] > 1).any()))


def parts(shown: Contents, slug: str = "") -> list[Part]:
    """Put a campaign's tables and figures in the order of the page; `slug` opens file names."""
    meta, found = shown.campaign.meta, shown.tables
    throughout = ranking.throughout(shown.rows)
    below = " Rows that are not ranked are listed below, with reasons." if len(found["refused"]) else ""
    concerns = provenance.concerns(meta)
    listed: list[Part] = [
        Text(headline(shown.rows) + (f" Throughout: {throughout}." if throughout else "")),
        page.Table(found["answer"]),
        Text(f"Time per mini-batch and its 95 % interval.{below}", note=True),
        *(page.Figure(slug + name, figure) for name, figure in shown.figures.items()),
        *tabled("Not ranked, and why", found["refused"]),
        *([Section("What makes this machine's numbers less trustworthy", concerns)]
          if concerns else []),
        *tabled("Every measured row", found["times"]),
        *tabled("Remarks on ranked rows", found["remarks"]),
    ]
    strong = "scaling" in found.get("scaling", ())
    listed += tabled(
        "Several devices", found.get("scaling"),
        "Each row is compared with the row on one device that differs in nothing else: with the "
        "same batch on each device (weak scaling)" + (" or in all (strong)" if strong else "")
        + ". Efficiency is the speed-up over the number of devices.", shown.unscaled)
    if shown.unscaled and "scaling" not in found:
        listed.append(Section("Several devices", [Text(shown.unscaled)]))
    listed += tabled("Which aggregation strategy wins", found.get("strategies"))
    listed += tabled(
        "What a step is made of", found.get("phases"),
        "Differences of nested variants of the step, timed in turn in one process. Aggregation is "
        "hidden if it takes longer alone than it adds to the step. A part is the median of paired "
        "differences, so the parts of a step with scattered times do not add up to it; the last "
        "column says by how much.")
    listed += tabled(
        "Traffic and energy of a mini-batch", found.get("traffic"), after=
        "Bytes on the links, packet headers included, and joules of all devices of a row, from "
        "counters read at both edges of each timed window. The last columns compare two ways to "
        "measure the same quantity; they should be 1.")
    listed += tabled("Peak memory", found["memory"])
    listed += tabled(
        "The GPU's speed-up over the processor", found.get("speed_up"),
        "The same trial on both, in the same build of each framework: the processor's time divided "
        "by the GPU's.")
    listed += tabled(
        "Why the slower ones are slower", found.get("reasons"),
        "Each row that is shown to be slower, beside the fastest of its workload: the parts of "
        "their steps that differ by a tenth of the gap or more, according to their traces. "
        "`dlbench explain` shows one pair in full.")
    first = " With several devices, the first was traced." if shown.several_traced else ""
    listed += tabled(
        "Where the GPU's time goes", found.get("gpu_time"),
        "Shares of all kernels and copies of a mini-batch, from a trace of ten steps. Idle is what "
        f"they leave of the timed step.{first}")
    listed += tabled(
        "Distance from the hardware limit", found.get("limits"),
        "The limit is the time that the network's operations and bytes need at the peaks that this "
        "campaign measured. The rest of the step was lost to the classes of its trace. Shares are "
        "of the step's time; a negative share took less time than the limit allows for it.")
    return [*listed, Section("Where the numbers come from", provenance.parts(meta))]


def _slug(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
