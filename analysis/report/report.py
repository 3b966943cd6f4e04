"""The report of one or several campaigns: report.html, report.md, tables as CSV, plots.

It opens with the answer and its plots. Then come the refused rows, the machine's concerns, further
tables, the environments and the method. It reads records and nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from analysis.display import memory, page, provenance, ranking, terminal
from analysis.display.page import Page, Part, Section, Text, tabled
from analysis.explain import reasons
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report import (
    accuracy,
    calls,
    divided,
    gpu_time,
    plots,
    roofline,
    scaling,
    scaling_plots,
    speed_up,
    tables,
    tiers,
)
from analysis.report.sections import (
    CHECKED,
    DRAWN,
    INFERENCE_METHOD,
    METHOD,
    PROOFS,
    RISING,
    SECTIONS,
    TRAINED,
    UNSEEN,
)
from analysis.trials import cross_check, effort, phases, remarks, summary

# This many contestants still fit side by side in a terminal.
SIDE_BY_SIDE = 3


def write(folders: Sequence[str | Path], out: str | Path, plots: bool = True) -> list[Path]:
    """Write the report of the campaigns in `folders` into `out` and return every path.

    Without `plots` nothing is drawn. Raises BadRecords, OSError.
    """
    campaigns = [reader.read(folder) for folder in folders]
    return write_derived([(each, summary.summarise(each)) for each in campaigns], out, plots)


def write_derived(derived: Sequence[tuple[Campaign, pd.DataFrame]], out: str | Path,
                  plots: bool = True) -> list[Path]:
    """Write the report of campaigns whose trials are derived already."""
    campaigns = [campaign for campaign, _ in derived]
    sections, written = [], dict[str, pd.DataFrame]()
    for number, (campaign, trials) in enumerate(derived, start=1):
        name = re.sub("[^a-z0-9]+", "-", campaign.meta["name"].lower()).strip("-")
        slug = f"{number}-{name}-" if len(campaigns) > 1 else ""
        section, found = _campaign(campaign, trials, slug)
        sections.append(section)
        written |= {f"{slug}{name}": table for name, table in found.items()}
    method = Section("Method", [Text(text) for text in _method(campaigns)])
    title = ", ".join(campaign.meta["name"] for campaign in campaigns)
    report = Page(title, [*sections, method]) if len(campaigns) > 1 else \
        Page(sections[0].heading, [*sections[0].parts, method])
    out = Path(out)
    return [*page.write_tables(written, out), *page.write(report, out, "report", images=plots)]


def _method(campaigns: Sequence[Campaign]) -> list[str]:
    """Say how the campaigns were measured and proven, those that train and those that infer."""
    training = [each for each in campaigns if not any(map(reader.infers, each.trials))]
    editions = {campaign.proves_each_process for campaign in training}
    proofs = [text for edition, text in PROOFS.items() if edition in editions]
    return [*(METHOD if training else ()), *proofs,
            *(INFERENCE_METHOD if len(training) < len(campaigns) else ())]


def terminal_table(campaign: Campaign) -> Table:
    """Make the table that ends a run: every trial with its time, or why it has none."""
    trials = summary.summarise(campaign)
    speeds = ranking.relative(campaign, trials)
    side_by_side = ranking.contestants(trials).nunique() <= SIDE_BY_SIDE
    answer = ranking.filled(campaign, trials, speeds)
    frame = tables.answer(*answer) if side_by_side else tables.listing(trials, speeds)
    table = terminal.table(frame, f"{campaign.folder.resolve().name}: time per "
                           f"{ranking.unit_of_work(trials)}")
    if not side_by_side:
        for place in range(1, len(frame)):
            table.rows[place - 1].end_section = bool(frame.iloc[place, 0])
    caption = [ranking.throughout(trials), *effort.unfinished(campaign), *effort.remarks(campaign),
               *ranking.caveats(trials), *_lost_processes(campaign, trials)]
    for row in tables.refused(trials).to_dict("records"):
        caption.append(f"{row['framework']}, {row['network']}, batch {row['batch']}: "
                       f"{row['verdict']}: {row['reason']}")
    table.caption = escape("\n".join(caption).strip())
    return table


def _lost_processes(campaign: Campaign, trials: pd.DataFrame) -> list[str]:
    """Say of each row with a time which of its processes gave none."""
    campaign = summary.without_diverged(campaign)
    return [f"{trial['framework']}, {trial['network']}, batch {trial['batch']}: {remark}"
            for trial in trials[trials["status"] == "ok"].to_dict("records")
            for remark in remarks.lost(trial, campaign.rows("processes", trial["trial"]))]


def headline(trials: pd.DataFrame) -> str:
    """Say how many trials there are, and what came of them."""
    verified, status = trials["verified"] == "yes", trials["status"]
    counts = {"ranked": verified.sum(),
              "measured but not verified": ((status == "ok") & ~verified).sum(),
              "unsupported": (status == "unsupported").sum(), "failed": (status == "failed").sum()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(trials)} trial{'s' if len(trials) != 1 else ''}: {said}."


@dataclass(frozen=True)
class Derived:
    """A campaign, its trials, and the rows of which the tables and figures are made."""

    campaign: Campaign
    trials: pd.DataFrame
    speeds: pd.DataFrame
    scaled: pd.DataFrame
    steps: pd.DataFrame
    speed_ups: pd.DataFrame
    gpu_times: pd.DataFrame
    limits: pd.DataFrame


def _campaign(campaign: Campaign, trials: pd.DataFrame,
              slug: str) -> tuple[Section, dict[str, pd.DataFrame]]:
    """Make a campaign's section of the page and its tables; `slug` opens the names of figures."""
    meta = campaign.meta
    derived = Derived(
        campaign, trials, ranking.relative(campaign, trials), scaling.curves(campaign, trials),
        phases.table(campaign, trials), speed_up.by_trial(campaign, trials),
        gpu_time.by_class(campaign.kernels, trials), roofline.by_trial(campaign, trials))
    found, figures = _tables(derived), _figures(derived)
    throughout = ranking.throughout(trials)
    below = " Rows that are not ranked are listed below, with reasons."
    unscaled, concerns = scaling.why_not(trials, derived.scaled), provenance.concerns(meta)
    words = {**_words(derived, found), "unscaled": unscaled}
    notes = {name: ranking.SEE_FIRST if ranking.is_marked(table) else ""
             for name, table in found.items()}
    if any(notes.values()):
        notes["answer"] = " ".join(ranking.caveats(trials))
    parts: list[Part] = [
        Text(headline(trials) + (f" Throughout: {throughout}." if throughout else "")),
        *(Text(remark) for remark in [*effort.unfinished(campaign), *effort.remarks(campaign)]),
        page.Table(found["answer"]),
        Text(f"Time per {ranking.unit_of_work(trials)} and its 95 % interval."
             + below * (len(found["refused"]) > 0)
             + f" {notes['answer']}".rstrip(), note=True),
        *(page.Figure(slug + name, draw) for name, draw in figures.items()),
        *tabled("Not ranked, and why", found["refused"], after=notes["refused"]),
        *([Section("What makes this machine's numbers less trustworthy", concerns)]
          if concerns else []),
    ]
    for name, heading, before, after in SECTIONS:
        below = f"{after.format(**words)} {notes.get(name, '')}".strip()
        parts += tabled(heading, found.get(name), before.format(**words), below)
        if name == "scaling" and name not in found and unscaled:
            parts.append(Section(heading, [Text(unscaled)]))
    parts.append(Section("Where the numbers come from", provenance.parts(meta)))
    return Section(meta["suite"].get("title") or meta["name"], parts), found


def _tables(derived: Derived) -> dict[str, pd.DataFrame]:
    """Return the tables of the page by name: those of every campaign, and others with rows."""
    campaign, trials, speeds = derived.campaign, derived.trials, derived.speeds
    found = {"answer": tables.answer(*ranking.filled(campaign, trials, speeds)),
             "times": tables.times(trials, speeds),
             "memory": tables.memory(trials),
             "refused": tables.refused(trials),
             "remarks": tables.remarks(trials)}
    more = {"loops": tables.loops(campaign, trials), "settings": tiers.table(campaign, trials),
            "traffic": _traffic(campaign, trials),
            "latency": calls.latency(trials), "first_call": calls.first_call(campaign, trials),
            "requests": calls.requests(trials),
            "scenarios": calls.scenarios(trials, campaign.scenarios),
            "outputs": calls.outputs(trials), "quantisation": calls.quantisation(trials),
            "answers": calls.answers(trials),
            "loading": tables.loading(trials), "to_target": accuracy.table(campaign, trials),
            "proof": tables.proof(trials, campaign.processes),
            "reasons": reasons.table(campaign, speeds),
            "strategies": scaling.winners(campaign, trials), "divided": divided.table(trials)}
    made_of: list[tuple[str, Callable[[pd.DataFrame], pd.DataFrame], pd.DataFrame]] = [
        ("scaling", scaling.table, derived.scaled), ("phases", scaling.phase_table, derived.steps),
        ("speed_up", speed_up.table, derived.speed_ups),
        ("gpu_time", gpu_time.table, derived.gpu_times), ("limits", roofline.table, derived.limits),
        ("best", partial(_best, campaign), ranking.at_best(trials))]
    more |= {name: make(rows) for name, make, rows in made_of if len(rows)}
    return found | {name: table for name, table in more.items() if len(table)}


def _best(campaign: Campaign, best: pd.DataFrame) -> pd.DataFrame:
    speeds = ranking.relative(campaign, best, ranking.ACROSS_TIERS)
    return tables.answer(best, speeds, ranking.ACROSS_TIERS)


def _words(derived: Derived, found: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return what fills the braces in the texts of `SECTIONS`."""
    campaign, trials, meta = derived.campaign, derived.trials, derived.campaign.meta
    (limit, share), weights = reader.server_goal(campaign), meta.get("weights") or {}
    return {"served": f"{100 * share:.6g} %", "limit": f"{limit:.3g} s",
            "files": (meta.get("data_sets") or {}).get("files", ""),
            "target": f"{100 * reader.target_of(campaign).get('target', 0):.3g} %",
            "epochs": " ".join(accuracy.sentences(campaign)),
            "strong": " or in all (strong)" if "scaling" in found.get("scaling", ()) else "",
            "weights": TRAINED.format(", ".join(weights)) if weights else DRAWN,
            "unseen": UNSEEN if "not seen" in found.get("proof", pd.DataFrame()).values else "",
            "rising": RISING if (trials["loss_last"] > trials["loss_first"]).any() else "",
            "uncounted": divided.remark(trials),
            "checked": CHECKED if {*tables.CHECKS.values()} & {*found.get("traffic", ())} else "",
            "memory": memory.note(trials),
            "traced": " With several devices, the first was traced."
            if (derived.gpu_times["devices"] > 1).any() else ""}


def _figures(derived: Derived) -> dict[str, Callable[[], Figure]]:
    """Return what draws every figure that the records allow, by the names of their files."""
    campaign, trials, speeds = derived.campaign, derived.trials, derived.speeds
    scaled, steps = derived.scaled, derived.steps
    verified = trials[trials["verified"] == "yes"]
    dropout = {trial["network"] for trial in campaign.trials if trial.get("dropout")}

    def by_batch(name: str, measure: str, rows: pd.DataFrame = trials
                 ) -> tuple[str, Any, Callable[[], Figure]]:
        return name, rows[measure].notna().any(), partial(plots.by_batch, trials, measure)

    shown: list[tuple[str, Any, Callable[[], Figure]]] = [
        ("speed_up", len(derived.speed_ups), partial(speed_up.figure, derived.speed_ups)),
        ("throughput", len(scaled), partial(scaling_plots.throughput, scaled)),
        ("efficiency", len(scaled), partial(scaling_plots.efficiency, scaled)),
        ("phases", steps[list(scaling.PARTS)].notna().any(axis=None),
         partial(scaling_plots.phases, steps)),
        ("step_time", len(verified), partial(plots.by_batch, trials, "step_seconds")),
        ("relative_speed", (speeds["verdict"] != ranking.FASTEST).any(),
         partial(plots.relative_speed, speeds)),
        ("losses", trials["loss_first"].notna().any(),
         partial(plots.losses, trials, campaign.windows, dropout)),
        *((f"accuracy_{over}", len(campaign.accuracy),
           partial(accuracy.figure, campaign, trials, over)) for over in accuracy.AXES),
        by_batch("latency_p50", "latency_p50_seconds", verified),
        by_batch("latency_p99", "latency_p99_seconds", verified),
        ("peak_memory", memory.compared(trials).notna().any(), partial(plots.peak_memory, trials)),
        by_batch("pcie_received", "pcie_rx_bytes_per_step"),
        by_batch("energy", "energy_joules_per_step"),
        ("gpu_time", len(derived.gpu_times), partial(gpu_time.figure, derived.gpu_times)),
        ("limits", len(derived.limits), partial(roofline.figure, derived.limits)),
    ]
    return {name: draw for name, known, draw in shown if known}


def _traffic(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    if not trials[list(tables.TRAFFIC)].notna().any(axis=None):
        return pd.DataFrame()
    checks = {trial["trial"]: cross_check.ratios(campaign, trial) for trial in campaign.trials}
    return tables.traffic(trials, checks)
