"""What the GEMM study found: the article's product, the cost of transposition, and what is called.

Letters are those of row-major matrices, C = op(A) op(B): a dense layer's forward pass x W^T is NT.
BLAS counts columns, so the kernel of the same product is called tn (`blas_letters`).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import networks
from analysis.display import style
from analysis.display.numbers import TIME_UNITS, best_unit, estimate, number, percent
from analysis.records import reader, study_reader
from analysis.records.study_reader import Records
from analysis.studies.report import NO_TIER, OF_TIERS, Part, not_measured
from analysis.traces.kernels import PRODUCT
from networks import work

ARTICLE = "1024x2048x26752"
SHAPE = ["m", "n", "k", "precision"]
WAYS = ["nn", "nt", "tn", "tt", "nt_copied", "tn_copied"]
LIBRARY = NO_TIER.format(library="cuBLAS (on CPUs, of PyTorch's BLAS)")
# The time of NT over NN in fp32.
PUBLISHED = {
    "arXiv 1608.07249 (2016)": "3, so that transposing first paid",
    "other readings": "1.4 to 2.8 on a GTX 1080 (2017), 1.0 on a K80",
}
COLOURS = dict(zip(WAYS, ("#8c8c8c", "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#e69f00"),
                   strict=True))


def parts(study: Records, found: pd.DataFrame, campaigns: Sequence[Path]) -> list[Part]:
    """Return the parts of the page, with what the frameworks of `campaigns` call."""
    steps = per_product(found, study.setting("batches"))
    shown = []
    if len(_article(found)):
        shown.append(Part(
            "The article's product: 2016 and here", "C = A B^T with A 1024 x 26752 and B 2048 x "
            "26752. `copied` first writes the transposed operand into a new matrix and then "
            "multiplies NN; its time includes that. " + LIBRARY,
            {"article": article(study, found)}, {"article": partial(draw_article, found)}))
    if len(steps):
        shown.append(Part(
            "What transposition costs a mini-batch", "All matrix products of one training step, "
            "forward and backward, each convolution as the product of its unfolded input. They run "
            "back to back and their operands stay in place. As needed: with canonical weights; all "
            "NN; best: with the fastest way for each. " + LIBRARY,
            {"networks": by_network(steps)}, files={"products": steps}))
    called = pd.concat([pd.DataFrame(), *(calls(reader.read(folder)) for folder in campaigns)])
    if len(called):
        shown.append(Part(
            "What frameworks call", "Kernels of matrix products in a mini-batch, by the letters in "
            "their names (column-major, as BLAS counts; x W^T is tn), from the traces of "
            "campaigns, beside what dense and recurrent layers need. " + OF_TIERS,
            {"calls": called}))
    shown.append(Part("Ratio by shape and precision", "One point a shape: time of the layout over "
                      "that of NN.", figures={"ratios": partial(draw_ratios, found)}))
    return [*shown, *not_measured(found)]


def article(study: Records, found: pd.DataFrame) -> pd.DataFrame:
    """Return the times of the article's product by precision, and the ratio of NT to NN."""
    mine = _article(found)
    unit, scale = best_unit(mine["seconds"], TIME_UNITS)
    rows = [{"where": where, "precision": "fp32", "NT / NN": said}
            for where, said in PUBLISHED.items()]
    for precision, group in mine.groupby("precision", sort=False):
        seconds = group.set_index("candidate")["seconds"].reindex(WAYS)
        nt, nn = ({**group.iloc[0], "candidate": name} for name in ("nt", "nn"))
        rows.append({
            "where": "here", "precision": str(precision),
            "NT / NN": estimate(study_reader.ratio(study, nt, nn)),
            **{f"{name.replace('_', ' ')} ({unit})": number(seconds[name] / scale)
               for name in WAYS},
            "copied / NT": number(seconds["nt_copied"] / seconds["nt"]),
            "fastest": str(seconds.idxmin()).replace("_", " ")})
    return pd.DataFrame(rows).fillna("")


def per_product(found: pd.DataFrame, batches: dict[str, int]) -> pd.DataFrame:
    """Return each matrix product of a network in each precision, with its seconds in a step.

    `needed` is the time of the layout that a network with canonical weights needs, `best` that of
    the fastest way.
    """
    able = found[found["status"] == "ok"]
    times = able.pivot_table(index=SHAPE, columns="candidate", values="seconds")
    measured: dict[Any, pd.Series[Any]] = dict(times.reindex(columns=WAYS).iterrows())
    none = pd.Series(np.nan, index=WAYS)
    rows = []
    for name, batch in batches.items():
        for product in work.matrix_products(networks.get(name), batch):
            for precision in found["precision"].unique():
                key = (product.m, product.n, product.k, precision)
                seconds = product.count * measured.get(key, none)
                rows.append({
                    "network": name, "batch": batch, "precision": precision, "layer": product.layer,
                    "op": product.op, "phase": product.phase, "m": product.m, "n": product.n,
                    "k": product.k, "count": product.count, "layout": product.transposition,
                    "needed": seconds[product.transposition.lower()], "best": seconds.min(),
                    "fastest": seconds.idxmin() if seconds.notna().any() else "", **seconds})
    return pd.DataFrame(rows)


def by_network(steps: pd.DataFrame) -> pd.DataFrame:
    """Add up the products of a step: the cost of transposition and what the best way saves."""
    rows = []
    groups = steps.groupby(["network", "batch", "precision"], sort=False) if len(steps) else ()
    for (name, batch, precision), group in groups:
        known = group[group["needed"].notna()]
        if known.empty:
            continue
        total, plain, best = (known[column].sum() for column in ("needed", "nn", "best"))
        unit, scale = best_unit([total], TIME_UNITS)
        saved = known["needed"] - known["best"]
        backward = saved[known["phase"] != "forward"].sum() / saved.sum() if saved.sum() else np.nan
        rows.append({
            "network": name, "batch": batch, "precision": precision,
            "products": int(known["count"].sum()), "as needed": f"{number(total / scale)} {unit}",
            "all NN": f"{number(plain / scale)} {unit}",
            "cost of transposition": percent(total / plain - 1, ".1f"),
            "best": f"{number(best / scale)} {unit}",
            "the best would save": percent(1 - best / total, ".1f"),
            "of it in backward": percent(backward, ".1f"),
            "not measured": int(group.loc[group["needed"].isna(), "count"].sum()) or ""})
    return pd.DataFrame(rows)


def calls(campaign: reader.Campaign) -> pd.DataFrame:
    """Count the kernels of matrix products by their letters, beside what the network needs."""
    trials = {trial["trial"]: trial for trial in campaign.trials}
    kernels = campaign.kernels[campaign.kernels["class"] == PRODUCT]
    rows = []
    for name, group in kernels.groupby("trial", sort=False):
        trial = trials[str(name)]
        letters = group["transposition"].replace("", "not said")
        # The kernels of conv2d are convolutions.
        needed = pd.Series([
            blas_letters(product.transposition) for product in
            work.matrix_products(networks.get(trial["network"]), trial["batch"])
            for _ in range(product.count) if product.op != "conv2d"])
        rows.append({
            **{key: trial[key] for key in ("framework", "network", "batch", "precision", "tuning")},
            "needed": _counted(needed.value_counts()),
            "called in a mini-batch": _counted(group.groupby(letters)["count_per_step"].sum()),
            "time (ms)": number(1e3 * group["seconds_per_step"].sum())})
    return pd.DataFrame(rows)


def blas_letters(layout: str) -> str:
    """Return the letters of a row-major product as a column-major BLAS is called.

    C^T = op(B)^T op(A)^T, so the operands change places.
    """
    return layout[::-1].lower()


@style.styled
def draw_article(found: pd.DataFrame) -> Figure:
    """Draw the article's product: a group of bars for each precision, over the time of NN."""
    ratios = _over_nn(_article(found)).reindex(columns=WAYS)
    figure = Figure(figsize=(style.WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(WAYS):
        axes.bar(np.arange(len(ratios)) + (place - 2.5) / 7, ratios[name], 1 / 7.5,
                 color=COLOURS[name], label=name.replace("_", " "))
    axes.axhline(1, color=style.INK, linewidth=0.8)
    axes.axhline(3, color=COLOURS["tn"], linewidth=0.8, linestyle=style.DASHED)
    axes.annotate("NT in the article, 2016", (0, 3), xycoords=("axes fraction", "data"),
                  xytext=(4, 3), textcoords="offset points", fontsize=8)
    axes.set_xticks(range(len(ratios)),
                    [str(key) for key in ratios.index.get_level_values("precision")])
    axes.set_ylabel("time over NN")
    axes.grid(axis="y")
    style.finish(figure, "C = A B^T, A 1024 x 26752, B 2048 x 26752", columns=len(WAYS))
    return figure


@style.styled
def draw_ratios(found: pd.DataFrame) -> Figure:
    """Draw each transposed layout over NN against the operations, a panel for each precision."""
    able = found[found["status"] == "ok"]
    precisions = list(dict.fromkeys(able["precision"]))
    abreast = min(2, max(1, len(precisions)))
    rows = max(1, -(-len(precisions) // abreast))
    figure = Figure(figsize=(style.WIDTH, 0.9 + 2.4 * rows), layout="constrained")
    grid = figure.subplots(rows, abreast, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(precisions):]:
        axes.set_axis_off()
    for axes, precision in zip(grid, precisions, strict=False):
        ratios = _over_nn(able[able["precision"] == precision]).reset_index()
        flops = 2.0 * ratios["m"] * ratios["n"] * ratios["k"]
        for name in ("nt", "tn", "tt"):
            if name in ratios:
                axes.plot(flops, ratios[name], "o", markersize=3.5, alpha=0.7, color=COLOURS[name],
                          label=name)
        axes.axhline(1, color=style.INK, linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(True)
        axes.set_title(precision)
    figure.supxlabel("operations of the product (log scale)", fontsize=9)
    figure.supylabel("time over NN (log scale)", fontsize=9)
    style.finish(figure, "What a transposed operand costs, by shape")
    return figure


def _article(found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the article's product that were measured."""
    return found[found["point"].str.startswith(ARTICLE + "-") & (found["status"] == "ok")]


def _over_nn(able: pd.DataFrame) -> pd.DataFrame:
    times = able.pivot_table(index=SHAPE, columns="candidate", values="seconds", sort=False)
    return times.div(times["nn"], axis=0) if "nn" in times else times


def _counted(counts: "pd.Series[Any]") -> str:
    return ", ".join(f"{count:g} {letters}" for letters, count in counts.sort_index().items())
