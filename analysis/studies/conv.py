"""What the convolution study found: the fastest algorithm of each layer, workspace, and errors.

A strategy picks one algorithm for each layer and pass: the fastest, the fastest within a limit of
workspace, or the first choice of the library's heuristics. The names of a campaign's kernels tell
what the frameworks chose, as far as they say.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import networks
from analysis.display import style
from analysis.display.numbers import (
    BYTE_UNITS,
    TIME_UNITS,
    best_unit,
    error,
    number,
    percent,
    with_unit,
)
from analysis.records import reader
from analysis.records.study_reader import Records
from analysis.studies import fft_sweep
from analysis.studies.report import NO_TIER, OF_TIERS, Part
from analysis.traces.convolution_kernels import family
from analysis.traces.kernels import CONVOLUTION
from networks import work

SHAPE = ["n", "c", "h", "w", "k", "r", "s", "stride", "padding", "groups"]
PHASES = {"forward": "forward", "backward_data": "backward_data",
          "backward_weights": "backward_filter"}
ARITHMETIC = {"fp32": "fma", "tf32": "tf32"}
# Caffe's own limit of a layer's workspace.
LIMIT_BYTES = 8 * 2**20
STRATEGIES = ("fastest", "within 8 MiB", "no workspace", "library's first")
TRIAL = ("framework", "network", "batch", "precision", "tuning")
# Okabe and Ito's, one for each strategy.
COLOURS = ("#009e73", "#e69f00", "#d55e00", "#8c8c8c")
# Of a network's row.
BAR_HEIGHT = 0.19


def parts(study: Records, found: pd.DataFrame, campaigns: Sequence[Path]) -> list[Part]:
    """Return the parts of the page, with what the frameworks of `campaigns` chose."""
    layers = per_layer(found, study.setting("batches"))
    recorded = [reader.read(folder) for folder in campaigns]
    shown = fft_sweep.parts(found) if study.setting("sweep") else _layer_parts(
        found, layers)
    called = pd.concat([pd.DataFrame(), *map(chosen, recorded)])
    if len(called):
        shown.append(Part(
            "What frameworks chose", "Convolution kernels in a mini-batch, by their names, from "
            "the traces of campaigns. A name does not tell its layer. " + OF_TIERS,
            {"chosen": called}))
    saved = pd.concat([pd.DataFrame(), *(savings(each, layers) for each in recorded)])
    if len(saved):
        shown.append(Part(
            "What the fastest algorithms would save", "The convolution kernels of a mini-batch in "
            "a campaign's trace, beside the sum of the fastest legacy algorithms here. A negative "
            "value means that the framework calls newer engines or fuses. " + OF_TIERS,
            {"savings": saved}))
    shown.append(Part("Support and numerical error", "Relative L2 error against float64, of layers "
                      "with random numbers.", {"errors": errors(found)}))
    if len(odd := wrong(found)):
        shown.append(Part("Failed, or too far from float64", "Not timed, and in no table above.",
                          {"wrong": odd}))
    return shown


def _layer_parts(found: pd.DataFrame, layers: pd.DataFrame) -> list[Part]:
    figures = {"choices": partial(choices, layers)} if len(layers) else {}
    listed = by_layer(found, layers)
    folded = {f"layers_{name}": group
              for name, group in (listed.groupby("network", sort=False) if len(listed) else ())}
    return [
        Part("What the choice of algorithm is worth in a mini-batch",
             "Time of all convolutions of one training step, with one algorithm for each layer and "
             "pass. 8 MiB is Caffe's limit of workspace. The library's first is what its "
             "heuristics recommend. " + NO_TIER.format(library="cuDNN"),
             {"strategies": by_network(layers)}, figures),
        Part("Layer by layer", "The fastest algorithm, its workspace, and the others as multiples "
             "of its time.", files={"algorithms": found}, folded=folded)]


def per_layer(found: pd.DataFrame, batches: dict[str, int]) -> pd.DataFrame:
    """Return the seconds of each strategy for each convolution of a training step.

    A row is a layer of a network, a pass and an arithmetic.
    """
    groups = found.groupby([*SHAPE, "pass", "math"], sort=False) if batches else ()
    picked = {key: strategies(group) for key, group in groups}
    rows = []
    for name, batch in batches.items():
        network = networks.get(name)
        needed = {(product.layer, PHASES[product.phase])
                  for product in work.matrix_products(network, batch)}
        for layer in network.layers:
            if layer.op != "conv2d":
                continue
            (c, h, w), a = network.shape_of(layer.inputs[0]), layer.attributes
            shape = (batch, c, h, w, a["filters"], a["kernel"], a["kernel"], a["stride"],
                     a["padding"], a.get("groups", 1))
            for (*measured, kind, arithmetic), seconds in picked.items():
                if tuple(measured) == shape and (layer.name, kind) in needed:
                    rows.append({"network": name, "batch": batch, "layer": layer.name,
                                 "pass": kind, "math": arithmetic,
                                 **dict(zip(SHAPE, shape, strict=True)), **seconds})
    return pd.DataFrame(rows)


def strategies(algorithms: pd.DataFrame) -> dict[str, float]:
    """Return the seconds of the algorithm that each strategy picks; nan if it finds none."""
    able = algorithms[algorithms["status"] == "ok"]
    seconds, space = able["seconds"], able["workspace_bytes"].fillna(0)
    first = seconds[able["rank"] == able["rank"].min()]
    picks = (seconds.min(), seconds[space <= LIMIT_BYTES].min(), seconds[space == 0].min(),
             first.iloc[0] if len(first) else np.nan)
    return dict(zip(STRATEGIES, map(float, picks), strict=True))


def by_network(layers: pd.DataFrame) -> pd.DataFrame:
    """Add up each network's convolutions; a strategy without an algorithm for a layer is empty."""
    rows = []
    groups = layers.groupby(["network", "batch", "math"], sort=False) if len(layers) else ()
    for (name, batch, arithmetic), group in groups:
        totals = group[list(STRATEGIES)].sum(skipna=False)
        unit, scale = best_unit([totals["fastest"]], TIME_UNITS)
        saved = 1 - totals["fastest"] / totals["library's first"]
        rows.append({"network": name, "batch": batch, "math": arithmetic,
                     "convolutions": len(group),
                     **{f"{each} ({unit})": number(totals[each] / scale) for each in STRATEGIES},
                     "the fastest saves of the library's first": percent(saved, ".1f")})
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def by_layer(found: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return each layer's fastest algorithm, and the others as multiples of its time."""
    groups = dict(list(found.groupby([*SHAPE, "pass", "math"], sort=False)))
    rows = []
    for _, layer in layers.iterrows():
        able = groups[tuple(layer[[*SHAPE, "pass", "math"]])]
        able = able[able["status"] == "ok"].sort_values("seconds")
        if able.empty:
            continue
        best, space = able.iloc[0], able.iloc[0]["workspace_bytes"]
        ranked = able[able["rank"].notna()].sort_values("rank")["candidate"]
        others = (f"{row.candidate} {number(row.seconds / best['seconds'])}"
                  for row in able.iloc[1:].itertuples())
        shape = "{n} x {c} x {h} x {w}, {k} of {r} x {s}, stride {stride}".format(**layer[SHAPE])
        rows.append({
            "network": layer["network"], "layer": layer["layer"],
            "pass": layer["pass"].replace("_", " "), "math": layer["math"], "shape": shape,
            "fastest": best["candidate"], "time": with_unit(best["seconds"], TIME_UNITS),
            "workspace": with_unit(space, BYTE_UNITS) if space > 0 else "",
            "others, as multiples": ", ".join(others),
            "library's first": ranked.iloc[0] if len(ranked) else ""})
    return pd.DataFrame(rows)


def errors(found: pd.DataFrame) -> pd.DataFrame:
    """Count the layers that each algorithm ran, and its errors."""
    rows = []
    for (kind, arithmetic, name), group in found.groupby(["pass", "math", "candidate"], sort=False):
        able = group[group["status"] == "ok"]
        reasons = group.loc[group["status"] != "ok", "reason"].value_counts()
        rows.append({"pass": str(kind).replace("_", " "), "math": arithmetic, "algorithm": name,
                     "layers": len(group), "ran": len(able),
                     "median error": error(able["error"].dropna().median()),
                     "largest error": error(able["error"].max()),
                     "most workspace (MiB)": number(able["workspace_bytes"].max() / 2**20),
                     "most frequent reason": reasons.index[0] if len(reasons) else ""})
    return pd.DataFrame(rows)


def wrong(found: pd.DataFrame) -> pd.DataFrame:
    """Count what failed or was different, with the first point and its reason."""
    rows = found[~found["status"].isin(["ok", "unsupported"])]
    grouped = rows.groupby(["candidate", "pass", "math", "status"], sort=False)
    table = grouped.agg(layers=("point", "size"), example=("point", "first"),
                        reason=("reason", "first")).reset_index()
    table = table.assign(**{"pass": table["pass"].str.replace("_", " ")})
    return table.rename(columns={"candidate": "algorithm", "example": "for example"})


def chosen(campaign: reader.Campaign) -> pd.DataFrame:
    """Count the convolution kernels of each traced trial by family and pass."""
    trials = {trial["trial"]: trial for trial in campaign.trials}
    kernels = campaign.kernels[campaign.kernels["class"] == CONVOLUTION]
    families = [family(name) for name in kernels["kernel"]]
    kernels = kernels.assign(family=[each.algorithm for each in families],
                             kind=[each.kind for each in families])
    return pd.DataFrame([
        {**{key: trials[str(trial)][key] for key in TRIAL}, "algorithm": algorithm,
         "pass": str(kind).replace("_", " "),
         "kernels in a mini-batch": f"{some['count_per_step'].sum():g}",
         "time (ms)": number(1e3 * some["seconds_per_step"].sum())}
        for trial, group in kernels.groupby("trial", sort=False)
        for (algorithm, kind), some in group.groupby(["family", "kind"])])


def savings(campaign: reader.Campaign, layers: pd.DataFrame) -> pd.DataFrame:
    """Compare the convolutions of each traced trial with the sum of the fastest algorithms.

    If the study has only other batches of the network, the row names them.
    """
    if layers.empty:
        return pd.DataFrame()
    best = layers.groupby(["network", "batch", "math"])["fastest"].sum()
    kernels = campaign.kernels[campaign.kernels["class"] == CONVOLUTION]
    seconds = kernels.groupby("trial")["seconds_per_step"].sum()
    rows = []
    for trial in campaign.trials:
        math, mine = ARITHMETIC.get(trial["precision"], ""), seconds.get(trial["trial"])
        batches = [str(batch) for network, batch, arithmetic in best.index
                   if (network, arithmetic) == (trial["network"], math)]
        if mine is None or not batches:
            continue
        fastest = best.get((trial["network"], trial["batch"], math))
        rows.append({
            **{name: trial[name] for name in TRIAL}, "convolutions (ms)": number(1e3 * mine),
            "fastest algorithms (ms)": "" if fastest is None else number(1e3 * fastest),
            "the best would save": percent(1 - fastest / mine, ".1f") if fastest is not None
            else f"not compared: the study has batch {', '.join(batches)}"})
    return pd.DataFrame(rows)


@style.styled
def choices(layers: pd.DataFrame) -> Figure:
    """Draw what `by_network` adds up: a panel an arithmetic, and a bar a strategy and network.

    A strategy that finds no algorithm for one of a network's layers has no bar there.
    """
    grouped = layers.groupby(["network", "batch", "math"], sort=False)[list(STRATEGIES)]
    totals = grouped.apply(pd.DataFrame.sum, skipna=False).reset_index()
    maths = list(dict.fromkeys(totals["math"]))
    unit, scale = best_unit(totals["fastest"], TIME_UNITS)
    size = (style.WIDTH, 1.6 + 0.75 * totals.groupby("math").size().max())
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(maths), squeeze=False, sharey=True)[0]
    for axes, math in zip(panels, maths, strict=True):
        mine = totals[totals["math"] == math].reset_index(drop=True)
        for place, (strategy, colour) in enumerate(zip(STRATEGIES, COLOURS, strict=True)):
            rows = [row + (place - (len(STRATEGIES) - 1) / 2) * BAR_HEIGHT for row in mine.index]
            values = mine[strategy] / scale
            axes.barh(rows, values, height=0.9 * BAR_HEIGHT, color=colour, label=strategy)
            for row, value in zip(rows, values, strict=True):
                text, end = (" none", 0) if pd.isna(value) else (f" {number(value)}", value)
                axes.annotate(text, (end, row), va="center", fontsize=7)
        axes.set_yticks(mine.index, [f"{row.network}, batch {row.batch}"
                                     for row in mine.itertuples()])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.margins(x=0.12)
        axes.set_title(math)
        axes.set_xlabel(f"all convolutions of a mini-batch ({unit})")
    panels[0].invert_yaxis()
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower left", ncols=len(STRATEGIES))
    return figure
