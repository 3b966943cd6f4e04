"""What the convolution study found: the fastest algorithm of each layer, what workspace buys, errors, and fbcunn's sweep.

A strategy picks one algorithm a layer and pass: the fastest, the fastest within a limit of workspace, or what the library's own
heuristics put first. What the frameworks of a campaign chose follows from the names of their kernels, as far as they say.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import networks
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, best_unit, number
from analysis.records import reader, study_reader
from analysis.studies import conv_plot, fft_sweep, report
from analysis.studies.report import Part
from analysis.traces.convolution_kernels import family
from analysis.traces.kernels import CONVOLUTION
from networks import work

SHAPE = ["n", "c", "h", "w", "k", "r", "s", "stride", "padding", "groups"]
PHASES = {"forward": "forward", "backward_data": "backward_data", "backward_weights": "backward_filter"}
ARITHMETIC = {"fp32": "fma", "tf32": "tf32"}
LIMIT_BYTES = 8 * 2**20  # Caffe's own limit of a layer's workspace
STRATEGIES = ("fastest", "within 8 MiB", "no workspace", "library's first")


def write(folders: Sequence[str | Path], out: Path, campaigns: Sequence[str | Path] = ()) -> Path:
    """Write the report of a convolution study, with what the frameworks of `campaigns` chose, and return its page."""
    study = study_reader.read(folders)
    found = study_reader.estimates(study)
    parts = []
    layers = per_layer(found, study.meta["settings"]["batches"])
    if study.meta["settings"]["sweep"]:
        parts += fft_sweep.parts(found)
    else:
        parts.append(Part(
            "What the choice of algorithm is worth in a mini-batch", "Time of all convolutions of one training step, one algorithm "
            "for each layer and pass; 8 MiB is Caffe's limit of workspace; the library's first is what its heuristics recommend.",
            {"strategies": by_network(layers)}, {"choices": conv_plot.choices(layers, STRATEGIES)} if len(layers) else {}))
        listed = by_layer(found, layers)
        each = {f"layers_{name}": group for name, group in listed.groupby("network", sort=False)} if len(listed) else {}
        parts.append(Part("Layer by layer", "The fastest algorithm, its workspace, and the others as multiples of its time.",
                          files={"algorithms": found}, folded=each))
    called = pd.concat([chosen(reader.read(folder)) for folder in campaigns]) if campaigns else pd.DataFrame()
    if len(called):
        parts.append(Part("What frameworks chose", "Kernels of convolutions in a mini-batch, by what their names say, from the "
                          "traces of campaigns. A name does not tell its layer.", {"chosen": called}))
    traced = [savings(reader.read(folder), layers) for folder in campaigns if len(layers)]
    saved = pd.concat(traced) if traced else pd.DataFrame()
    if len(saved):
        parts.append(Part("What the best would save of it", "A mini-batch's convolution kernels in a campaign's trace beside the "
                          "sum of the fastest legacy algorithms here. Where it is negative, newer engines are called, or fused.",
                          {"savings": saved}))
    parts.append(Part("Support and numerical error", "Relative L2 error against float64, of layers with random numbers.",
                      {"errors": errors(found)}))
    odd = wrong(found)
    if len(odd):
        parts.append(Part("Failed, or too far from float64", "Not timed, and in no table above.", {"wrong": odd}))
    return report.write(study, "Convolution algorithms", parts, out)


def per_layer(found: pd.DataFrame, batches: dict[str, int]) -> pd.DataFrame:
    """A row a convolution layer of each network, pass and arithmetic that a training step needs: seconds by each strategy."""
    picked = {key: strategies(group) for key, group in found.groupby([*SHAPE, "pass", "math"], sort=False)} if batches else {}
    rows = []
    for name, batch in batches.items():
        network = networks.get(name)
        needed = {(product.layer, PHASES[product.phase]) for product in work.matrix_products(network, batch)}
        for layer in network.layers:
            if layer.op != "conv2d":
                continue
            (c, h, w), a = network.shape_of(layer.inputs[0]), layer.attributes
            shape = (batch, c, h, w, a["filters"], a["kernel"], a["kernel"], a["stride"], a["padding"], a.get("groups", 1))
            for (*of, kind, arithmetic), seconds in picked.items():
                if tuple(of) == shape and (layer.name, kind) in needed:
                    rows.append({"network": name, "batch": batch, "layer": layer.name, "pass": kind, "math": arithmetic,
                                 **dict(zip(SHAPE, shape, strict=True)), **seconds})
    return pd.DataFrame(rows)


def strategies(algorithms: pd.DataFrame) -> dict[str, float]:
    """Seconds of the algorithm that each strategy picks; nan where it finds none."""
    able = algorithms[algorithms["status"] == "ok"]
    space = able["workspace_bytes"].fillna(0)
    first = able.loc[able["rank"] == able["rank"].min(), "seconds"]
    picks = (able["seconds"].min(), able.loc[space <= LIMIT_BYTES, "seconds"].min(), able.loc[space == 0, "seconds"].min(),
             first.iloc[0] if len(first) else np.nan)
    return dict(zip(STRATEGIES, map(float, picks), strict=True))


def by_network(layers: pd.DataFrame) -> pd.DataFrame:
    """Add up each network's convolutions, a row an arithmetic and strategy set; a strategy without answer for a layer is empty."""
    rows = []
    for (name, batch, arithmetic), group in layers.groupby(["network", "batch", "math"], sort=False) if len(layers) else ():
        totals = group[list(STRATEGIES)].sum(skipna=False)
        unit, scale = best_unit([totals["fastest"]], TIME_UNITS)
        rows.append({"network": name, "batch": batch, "math": arithmetic, "convolutions": len(group),
                     **{f"{each} ({unit})": number(totals[each] / scale) for each in STRATEGIES},
                     "the fastest saves of the library's first": _percent(1 - totals["fastest"] / totals["library's first"])})
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def by_layer(found: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """The fastest algorithm of each layer, pass and arithmetic, and the others as multiples of it."""
    groups = dict(list(found.groupby([*SHAPE, "pass", "math"], sort=False)))
    rows = []
    for _, layer in layers.iterrows():
        able = groups[tuple(layer[[*SHAPE, "pass", "math"]])]
        able = able[able["status"] == "ok"].sort_values("seconds")
        if able.empty:
            continue
        best, ranked = able.iloc[0], able[able["rank"].notna()].sort_values("rank")["candidate"]
        unit, scale = best_unit([best["seconds"]], TIME_UNITS)
        memory, size = best_unit([best["workspace_bytes"]], BYTE_UNITS)
        others = ", ".join(f"{row.candidate} {number(row.seconds / best['seconds'])}" for row in able.iloc[1:].itertuples())
        rows.append({"network": layer["network"], "layer": layer["layer"], "pass": layer["pass"].replace("_", " "),
                     "math": layer["math"],
                     "shape": "{n} x {c} x {h} x {w}, {k} of {r} x {s}, stride {stride}".format(**layer[SHAPE]),
                     "fastest": best["candidate"], "time": f"{number(best['seconds'] / scale)} {unit}",
                     "workspace": f"{number(best['workspace_bytes'] / size)} {memory}" if best["workspace_bytes"] > 0 else "",
                     "others, as multiples": others, "library's first": ranked.iloc[0] if len(ranked) else ""})
    return pd.DataFrame(rows)


def errors(found: pd.DataFrame) -> pd.DataFrame:
    """Where each algorithm ran, and how wrong it was: a row an algorithm, pass and arithmetic."""
    rows = []
    for (kind, arithmetic, name), group in found.groupby(["pass", "math", "candidate"], sort=False):
        able = group[group["status"] == "ok"]
        why = group.loc[group["status"] != "ok", "reason"].value_counts()
        rows.append({"pass": str(kind).replace("_", " "), "math": arithmetic, "algorithm": name, "layers": len(group),
                     "ran": len(able),
                     "median error": _error(able["error"].median()), "largest error": _error(able["error"].max()),
                     "most workspace (MiB)": number(able["workspace_bytes"].max() / 2**20),
                     "most frequent reason": why.index[0] if len(why) else ""})
    return pd.DataFrame(rows)


def wrong(found: pd.DataFrame) -> pd.DataFrame:
    """Count what failed or was different, a row an algorithm, pass and arithmetic, each with the first point and its reason."""
    rows = found[~found["status"].isin(["ok", "unsupported"])]
    grouped = rows.groupby(["candidate", "pass", "math", "status"], sort=False)
    table = grouped.agg(layers=("point", "size"), example=("point", "first"), reason=("reason", "first")).reset_index()
    return table.assign(**{"pass": table["pass"].str.replace("_", " ")}).rename(columns={"candidate": "algorithm",
                                                                                        "example": "for example"})


def chosen(campaign: reader.Campaign) -> pd.DataFrame:
    """Count the convolution kernels of each traced trial by family and pass."""
    trials = {trial["trial"]: trial for trial in campaign.trials}
    kernels = campaign.kernels[campaign.kernels["class"] == CONVOLUTION]
    rows: list[dict[str, Any]] = []
    for trial, group in kernels.groupby("trial", sort=False):
        said = trials[str(trial)]
        families = [family(name) for name in group["kernel"]]
        counts = group.assign(family=[each.algorithm for each in families], kind=[each.kind for each in families])
        for (algorithm, kind), some in counts.groupby(["family", "kind"]):
            rows.append({**{key: said[key] for key in ("framework", "network", "batch", "precision", "tuning")},
                         "algorithm": algorithm, "pass": str(kind).replace("_", " "),
                         "kernels in a mini-batch": f"{some['count_per_step'].sum():g}",
                         "time (ms)": number(1e3 * some["seconds_per_step"].sum())})
    return pd.DataFrame(rows)


def savings(campaign: reader.Campaign, layers: pd.DataFrame) -> pd.DataFrame:
    """A row a traced trial of a network and arithmetic that the study has: its convolutions' seconds beside the fastest
    algorithms', or the batch that the study has in place of the trial's."""
    best = layers.groupby(["network", "batch", "math"])["fastest"].sum()
    kernels = campaign.kernels[campaign.kernels["class"] == CONVOLUTION]
    seconds = kernels.groupby("trial")["seconds_per_step"].sum()
    rows = []
    for trial in campaign.trials:
        math, mine = ARITHMETIC.get(trial["precision"], ""), seconds.get(trial["trial"])
        batches = [batch for network, batch, arithmetic in best.index if (network, arithmetic) == (trial["network"], math)]
        if mine is not None and batches:
            fastest = best.get((trial["network"], trial["batch"], math))
            rows.append({**{name: trial[name] for name in ("framework", "network", "batch", "precision", "tuning")},
                         "convolutions (ms)": number(1e3 * mine),
                         "fastest algorithms (ms)": "" if fastest is None else number(1e3 * fastest),
                         "the best would save": f"not compared: the study has batch {', '.join(map(str, batches))}"
                                                if fastest is None else _percent(1 - fastest / mine)})
    return pd.DataFrame(rows)


def _error(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.1e}"


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.1f} %"
