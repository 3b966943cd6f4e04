"""The report of one or several campaigns: report.html, report.md, tables as CSV, plots.

It opens with the answer and its plots. Then come the refused rows, the machine's concerns, further
tables, the environments and the method. It reads records and nothing else.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
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
    accuracy,
    calls,
    divided,
    gpu_time,
    plots,
    reasons,
    roofline,
    scaling,
    scaling_plots,
    speed_up,
    tables,
    tiers,
)
from analysis.statistics import bootstrap
from analysis.trials import cross_check, effort, phases, summary

# This many contestants still fit side by side in a terminal.
SIDE_BY_SIDE = 3
METHOD = (
    "Each trial runs in several processes, interleaved in random order. A process times windows of "
    "many steps, each between two synchronisations that wait for the updated parameters. A time is "
    "the median over processes of each process's median window. Its 95 % interval is a bootstrap "
    "that draws processes first and windows within them, widened for few processes; fewer than "
    f"{bootstrap.MINIMUM_PROCESSES} processes give none. If the interval of a ratio contains 1, no "
    "difference was seen.",
)
INFERENCE_METHOD = (
    "Each trial runs in several processes, interleaved in random order. A process runs calls one "
    "after another and keeps the time of each; a time per mini-batch is that of a window of calls. "
    "A quantile is the median over processes of each process's quantile. Its 95 % interval draws "
    "processes, and for each the rank of its order statistic, and is widened for few processes.",
    "Only verified rows are ranked. In a verified row, each process gave the reference's outputs. "
    "They are checked for inputs of the proof before the first window, and for the timed inputs "
    "in the last call of each window. The error's size fits the declared precision.",
)
# What proved the rows: of campaigns that prove each process, and of those of earlier releases.
PROOFS = {
    True: "Only verified rows are ranked. In a verified row, each process proved the step that it "
    "timed before the first window and after the last one. Its loss, gradients, updates and "
    "running statistics agreed with the reference. A runner that trains nothing would have been "
    "refused. Losses that differ from another row's are remarks.",
    False: "Only verified rows are ranked. In a verified row, the framework agreed with the "
    "reference in loss, gradients and trained parameters. It built the network's own number of "
    "parameters. Its losses agree with those of its other processes and of the other frameworks.",
}
UNSEEN = "Not seen: even a missing update could have passed."
RISING = ("Some losses rise: a process trains only as long as its windows take, and momentum may "
          "raise the loss in the first tens of steps.")


# The sections of tables: name of the table, heading, notes above and below it.
SECTIONS = (
    ("best", "Each framework at its best",
     "Each framework's fastest verified row of all tiers. Only this table compares across tiers.",
     ""),
    ("settings", "What each tier sets", "", ""),
    ("to_target", "Time to accuracy",
     "Until {target} of the test part's labels are right: medians over seeds, with the least and "
     "the most. Each seed gives all rows the same weights and the same mini-batches. Training time "
     "leaves testing and feeding out. dlbench tests the weights itself, in float64.", "{epochs}"),
    ("loading", "Training from image files",
     "Each framework's own loader reads, decodes and batches the files; all three times are of a "
     "mini-batch, timed in turn in each process. Compute-bound: training takes at most 5 % longer "
     "than the step alone on batches that lie on the device. Loader-bound: it takes longer, and "
     "the loader alone takes at least as long as the step. Overlap lost: the loader alone keeps "
     "up, and training takes longer all the same. On a CPU both share its cores. Files: {files}.",
     "Every sample of an epoch and the batches after the last window were compared with the "
     "driver's own decode."),
    ("latency", "Latency of a call", "One call at a time, from input to output.", ""),
    ("requests", "Requests that a server answers in time",
     "The highest rate of requests that come at random, where {served} of them are answered "
     "within {limit}. They queue for one worker. The search ends at an interval of 3 % of the rate "
     "that calls one after another reach.", ""),
    ("scenarios", "MLPerf's scenarios",
     "LoadGen asks: MultiStream for one batch after another, Offline for all samples at once. Its "
     "verdict holds for the suite's duration; an official result takes ten minutes.", ""),
    ("times", "Every measured row", "", "{rising}"),
    ("remarks", "Remarks on ranked rows", "", ""),
    ("proof", "What the proof of each row sees",
     "The smallest faults that the proof would have refused, in the weakest process of the row. "
     "Learning rate: how wrong it would be. Scale of gradients: how wrong it would be in the "
     "tensors that hold 95 % of the parameters. Frozen parameters: the share in tensors that "
     "could stand still.",
     "{unseen}"),
    ("outputs", "How far outputs are off",
     "The largest distance from the float64 reference, in units of how outputs differ between "
     "inputs, and what the rounding of the declared precision explains. The reference of INT8 "
     "quantises as the engine must.", ""),
    ("quantisation", "What INT8 costs",
     "Outputs against those of the network itself, with the weights that were drawn. A trained "
     "network's accuracy is another matter.", ""),
    ("scaling", "Several devices",
     "Each row is compared with the row on one device that differs in nothing else, with the same "
     "batch on each device (weak scaling){strong}. Efficiency is the speed-up over the number of "
     "devices.", "{unscaled}"),
    ("strategies", "Which aggregation strategy wins", "", ""),
    ("divided", "What devices send to each other",
     "Bytes of all devices in a step. Predicted: from the network and how it was divided. Counted: "
     "by NVLink's counters. A pipeline idles while its first stages fill and its last ones empty.",
     "{uncounted}"),
    ("phases", "What a step is made of",
     "Differences of nested variants of the step, timed in turn in one process. Aggregation is "
     "hidden if it takes longer alone than it adds to the step. A part is the median of paired "
     "differences. So the parts of a step with scattered times do not add up to it, and the last "
     "column says by how much.", ""),
    ("traffic", "Traffic and energy of a mini-batch", "",
     "Bytes on the links, packet headers included, and joules of all devices of a row, from "
     "counters read at both edges of each timed window. The last columns compare two ways to "
     "measure the same quantity; they should be 1."),
    ("memory", "Peak memory", "", ""),
    ("speed_up", "The GPU's speed-up over the processor",
     "The same trial on both, in the same build of each framework: the processor's time divided by "
     "the GPU's.", ""),
    ("reasons", "Why the slower ones are slower",
     "Each row that is shown to be slower stands beside the fastest of its workload. Their traces "
     "give the parts of their steps that differ by a tenth of the gap or more. "
     "`dlbench explain` shows one pair in full.", ""),
    ("gpu_time", "Where the GPU's time goes",
     "Shares of all kernels and copies of a mini-batch, from a trace of ten steps. Idle is what "
     "they leave of the timed step.{traced}", ""),
    ("limits", "Distance from the hardware limit",
     "The limit is the time that the network's operations and bytes need at the peaks that this "
     "campaign measured. The rest of the step was lost to the classes of its trace. Shares are of "
     "the step's time; a negative share took less time than the limit allows for it.", ""),
)


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
    training = [each for each in campaigns if not _infers(each)]
    editions = {campaign.proves_each_process for campaign in training}
    proofs = [text for edition, text in PROOFS.items() if edition in editions]
    return [*(METHOD if training else ()), *proofs,
            *(INFERENCE_METHOD if len(training) < len(campaigns) else ())]


def _infers(campaign: Campaign) -> bool:
    return any(map(reader.infers, campaign.trials))


def terminal_table(campaign: Campaign) -> Table:
    """Make the table that ends a run: every trial with its time, or why it has none."""
    trials = summary.summarise(campaign)
    speeds = ranking.relative(campaign, trials)
    side_by_side = ranking.contestants(trials).nunique() <= SIDE_BY_SIDE
    answer = ranking.filled(campaign, trials, speeds)
    frame = tables.answer(*answer) if side_by_side else tables.listing(trials, speeds)
    table = terminal.table(frame, f"{campaign.meta['name']}: time per mini-batch")
    if not side_by_side:
        for place in range(1, len(frame)):
            table.rows[place - 1].end_section = bool(frame.iloc[place, 0])
    caption = [ranking.throughout(trials), *effort.remarks(campaign), *ranking.caveats(trials)]
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


def _campaign(campaign: Campaign, trials: pd.DataFrame,
              slug: str) -> tuple[Section, dict[str, pd.DataFrame]]:
    """Make a campaign's section of the page and its tables; `slug` opens the names of figures."""
    meta = campaign.meta
    speeds = ranking.relative(campaign, trials)
    times = gpu_time.by_class(campaign.kernels, trials)
    scaled = scaling.curves(campaign, trials)
    derived = {
        "speed_up": (speed_up, speed_up.by_trial(campaign, trials)), "gpu_time": (gpu_time, times),
        "limits": (roofline, roofline.by_trial(campaign, trials))}
    steps, best = phases.table(campaign, trials), ranking.at_best(trials)
    found = {"answer": tables.answer(*ranking.filled(campaign, trials, speeds)),
             "times": tables.times(trials, speeds),
             "memory": tables.memory(trials), "refused": tables.refused(trials),
             "remarks": tables.remarks(trials)}
    if _infers(campaign):
        found |= {"latency": calls.latency(trials), "outputs": calls.outputs(trials)}
        if len(campaign.server):
            found["requests"] = calls.requests(trials)
        if len(campaign.scenarios):
            found["scenarios"] = calls.scenarios(trials, campaign.scenarios)
        if trials["quantization_error"].notna().any():
            found["quantisation"] = calls.quantisation(trials)
    if len(campaign.loading):
        found["loading"] = tables.loading(trials)
    if reader.target_of(campaign):
        found["to_target"] = accuracy.table(campaign, trials)
    if not _infers(campaign) and campaign.proves_each_process:
        found |= {"proof": tables.proof(trials)}
    across = ranking.relative(campaign, best, ranking.ACROSS_TIERS)
    more = {"best": tables.answer(best, across, ranking.ACROSS_TIERS) if len(best) else best,
            "settings": tiers.table(campaign, trials), "traffic": _traffic(campaign, trials),
            "reasons": reasons.table(campaign, speeds),
            "strategies": scaling.winners(campaign, trials), "divided": divided.table(trials),
            "scaling": scaling.table(scaled) if len(scaled) else scaled,
            "phases": scaling.phase_table(steps) if len(steps) else steps,
            **{name: part.table(rows) if len(rows) else rows
               for name, (part, rows) in derived.items()}}
    found |= {name: table for name, table in more.items() if len(table)}

    drawn = {name: partial(part.figure, rows)
             for name, (part, rows) in derived.items() if len(rows)}
    first = {name: figure for name, figure in drawn.items() if name == "speed_up"}
    figures = first | _figures(campaign, trials, speeds, scaled, steps) | drawn
    throughout = ranking.throughout(trials)
    below = " Rows that are not ranked are listed below, with reasons."
    unscaled, concerns = scaling.why_not(trials, scaled), provenance.concerns(meta)
    goal = meta["suite"].get("server") or {}
    words = {"served": f"{100 * goal.get('share', 0):.3g} %",
             "limit": f"{goal.get('latency_seconds', 0):.3g} s",
             "files": (meta.get("data_sets") or {}).get("files", ""),
             "target": f"{100 * reader.target_of(campaign).get('target', 0):.3g} %",
             "epochs": " ".join(accuracy.sentences(campaign)),
             "strong": " or in all (strong)" if "scaling" in found.get("scaling", ()) else "",
             "unseen": UNSEEN if "not seen" in found.get("proof", pd.DataFrame()).values else "",
             "rising": RISING if (trials["loss_last"] > trials["loss_first"]).any() else "",
             "unscaled": unscaled, "uncounted": divided.remark(trials),
             "traced": " With several devices, the first was traced."
             if (times["devices"] > 1).any() else ""}
    notes = {name: " ".join(ranking.caveats(trials)) if ranking.is_marked(table) else ""
             for name, table in found.items()}
    parts: list[Part] = [
        Text(headline(trials) + (f" Throughout: {throughout}." if throughout else "")),
        *(Text(remark) for remark in effort.remarks(campaign)),
        page.Table(found["answer"]),
        Text("Time per mini-batch and its 95 % interval." + below * (len(found["refused"]) > 0)
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


def _figures(campaign: Campaign, trials: pd.DataFrame, speeds: pd.DataFrame, scaled: pd.DataFrame,
             steps: pd.DataFrame) -> dict[str, Callable[[], Figure]]:
    """Return what draws every figure that the records allow, by the names of their files."""
    figures: dict[str, Callable[[], Figure]] = {}
    if len(scaled):
        figures["throughput"] = partial(scaling_plots.throughput, scaled)
        figures["efficiency"] = partial(scaling_plots.efficiency, scaled)
    if steps[list(scaling.PARTS)].notna().any(axis=None):
        figures["phases"] = partial(scaling_plots.phases, steps)
    if (trials["verified"] == "yes").any():
        figures["step_time"] = partial(plots.by_batch, trials, "step_seconds")
    if (speeds["verdict"] != ranking.FASTEST).any():
        figures["relative_speed"] = partial(plots.relative_speed, speeds)
    if trials["loss_first"].notna().any():
        dropout = {trial["network"] for trial in campaign.trials if trial.get("dropout")}
        figures["losses"] = partial(plots.losses, trials, campaign.windows, dropout)
    if len(campaign.accuracy):
        for over in accuracy.AXES:
            figures[f"accuracy_{over}"] = partial(accuracy.figure, campaign, trials, over)
    for name in ("p50", "p99"):
        measure = f"latency_{name}_seconds"
        if trials.loc[trials["verified"] == "yes", measure].notna().any():
            figures[f"latency_{name}"] = partial(plots.by_batch, trials, measure)
    return figures | {name: partial(plots.by_batch, trials, measure) for name, measure in (
        ("peak_memory", "peak_memory_bytes"), ("pcie_received", "pcie_rx_bytes_per_step"),
        ("energy", "energy_joules_per_step")) if trials[measure].notna().any()}


def _traffic(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    if not trials[list(tables.TRAFFIC)].notna().any(axis=None):
        return pd.DataFrame()
    checks = {trial["trial"]: cross_check.ratios(campaign, trial) for trial in campaign.trials}
    return tables.traffic(trials, checks)
