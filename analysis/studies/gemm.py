"""What the GEMM study found: the article's product then and now, what transposition costs a network, and what frameworks call.

Letters are those of row-major matrices, C = op(A) op(B): a dense layer's forward pass x W^T is NT. BLAS counts columns, so the
same product's kernel is called tn (`blas_letters`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import networks
from analysis.display import style
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.records import reader, study_reader
from analysis.records.study_reader import Records
from analysis.statistics import bootstrap
from analysis.studies import report
from analysis.studies.report import Part
from analysis.traces.kernels import PRODUCT
from networks import work

ARTICLE = "1024x2048x26752"
LAYOUTS = ("nn", "nt", "tn", "tt")
WAYS = (*LAYOUTS, "nt_copied", "tn_copied")
SAID = {  # of the time of NT over NN in fp32
    "arXiv 1608.07249 (2016)": "3, so that transposing first paid",
    "other readings": "1.4 to 2.8 on a GTX 1080 (2017), 1.0 on a K80",
}
COLOURS = dict(zip(WAYS, ("#8c8c8c", "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#e69f00"), strict=True))


def write(folders: Sequence[str | Path], out: Path, campaigns: Sequence[str | Path] = ()) -> Path:
    """Write the report of a GEMM study, with what the frameworks of `campaigns` call, and return its page."""
    study = study_reader.read(folders)
    found = study_reader.estimates(study)
    steps = per_product(found, study.meta["settings"]["batches"])
    parts = []
    if (found["point"].str.startswith(ARTICLE + "-") & (found["status"] == "ok")).any():
        parts.append(Part(
            "The article's product: 2016 said, here it is",
            "C = A B^T with A 1024 x 26752 and B 2048 x 26752. `copied` writes the transposed operand into a new matrix first and "
            "then multiplies NN; its time includes that.", {"article": article(study, found)}, {"article": draw_article(found)}))
    if len(steps):
        parts.append(Part(
            "What transposition costs a mini-batch", "All matrix products of forward and backward of one training step, each "
            "convolution as the product of its unfolded input, back to back with operands that stay where they are: as a network "
            "with canonical weights needs them; all NN; with the best of all ways for each.", {"networks": by_network(steps)}, {},
            {"products": steps}))
    called = pd.concat([calls(reader.read(folder)) for folder in campaigns]) if campaigns else pd.DataFrame()
    if len(called):
        parts.append(Part(
            "What frameworks really call", "Kernels of matrix products in a mini-batch, by the letters in their names (column-"
            "major, as BLAS counts; x W^T is tn), from the traces of campaigns, beside what dense and recurrent layers need.",
            {"calls": called}))
    parts.append(Part("Ratio by shape and precision", "One point a shape: time of the layout over that of NN.", {},
                      {"ratios": draw_ratios(found)}))
    refused = study_reader.refused(found)
    if len(refused):
        parts.append(Part("Not measured, and why", "", {"refused": refused}))
    return report.write(study, "What a transposed operand costs", parts, out)


def article(study: Records, found: pd.DataFrame) -> pd.DataFrame:
    """The article's product: a row a precision, each way's time, and the ratio of NT to NN with its interval."""
    mine = found[(found["point"].str.startswith(ARTICLE + "-")) & (found["status"] == "ok")]
    unit, scale = best_unit(mine["seconds"], TIME_UNITS)
    rows = [{"where": where, "precision": "fp32", "NT / NN": said} for where, said in SAID.items()]
    for precision, group in mine.groupby("precision", sort=False):
        seconds = group.set_index("candidate")["seconds"]
        ratio = study_reader.ratio(study, f"{ARTICLE}-{precision}", "nt", "nn")
        best = seconds.idxmin()
        rows.append({"where": "here", "precision": str(precision), "NT / NN": _ratio(ratio),
                     **{f"{name.replace('_', ' ')} ({unit})": number(seconds.get(name, np.nan) / scale) for name in WAYS},
                     "copied / NT": number(seconds.get("nt_copied", np.nan) / seconds.get("nt", np.nan)),
                     "fastest": str(best).replace("_", " ")})
    return pd.DataFrame(rows).fillna("")


def per_product(found: pd.DataFrame, batches: dict[str, int]) -> pd.DataFrame:
    """A row a matrix product of each network and precision: its layer and shape, how often a step needs it, and seconds a step.

    `needed` is the time of the layout that a network with canonical weights needs, `best` that of the fastest way.
    """
    able = found[found["status"] == "ok"]
    times = able.pivot_table(index=["m", "n", "k", "precision"], columns="candidate", values="seconds").reindex(columns=list(WAYS))
    rows = []
    none = pd.Series(np.nan, index=list(WAYS))
    measured: dict[Any, pd.Series[Any]] = {key: row for key, row in times.iterrows()}
    for name, batch in batches.items():
        for product in work.matrix_products(networks.get(name), batch):
            for precision in found["precision"].unique():
                seconds = product.count * measured.get((product.m, product.n, product.k, precision), none)
                rows.append({"network": name, "batch": batch, "precision": precision, "layer": product.layer, "op": product.op,
                             "phase": product.phase, "m": product.m, "n": product.n, "k": product.k, "count": product.count,
                             "layout": product.transposition, "needed": seconds[product.transposition.lower()],
                             "best": seconds.min(), "fastest": seconds.idxmin() if seconds.notna().any() else "", **seconds})
    return pd.DataFrame(rows)


def by_network(steps: pd.DataFrame) -> pd.DataFrame:
    """Add the products of each network up to a step: what transposition costs and what the best choice would save."""
    rows = []
    for (name, batch, precision), group in steps.groupby(["network", "batch", "precision"], sort=False) if len(steps) else ():
        known = group[group["needed"].notna()]
        if known.empty:
            continue
        total, plain, best = (known[column].sum() for column in ("needed", "nn", "best"))
        unit, scale = best_unit([total], TIME_UNITS)
        rows.append({
            "network": name, "batch": batch, "precision": precision, "products": int(known["count"].sum()),
            "as needed": f"{number(total / scale)} {unit}", "all NN": f"{number(plain / scale)} {unit}",
            "cost of transposition": _percent(total / plain - 1), "best": f"{number(best / scale)} {unit}",
            "the best would save": _percent(1 - best / total), "of it in backward": _percent(_backward_share(known)),
            "not measured": int(group.loc[group["needed"].isna(), "count"].sum()) or "",
        })
    return pd.DataFrame(rows)


def calls(campaign: reader.Campaign) -> pd.DataFrame:
    """Count the kernels of matrix products by their letters, a row a traced trial, beside what its network needs."""
    trials = {trial["trial"]: trial for trial in campaign.trials}
    products = campaign.kernels[campaign.kernels["class"] == PRODUCT]
    rows = []
    for trial, group in products.groupby("trial", sort=False):
        said = trials[str(trial)]
        counts = group.groupby(group["transposition"].replace("", "not said"))["count_per_step"].sum()
        seconds = group["seconds_per_step"].sum()
        needed = pd.Series([blas_letters(product.transposition) for product in
                            work.matrix_products(networks.get(said["network"]), said["batch"]) for _ in range(product.count)
                            if product.op != "conv2d"])  # whose kernels are convolutions
        rows.append({**{key: said[key] for key in ("framework", "network", "batch", "precision", "tuning")},
                     "needed": _counted(needed.value_counts()), "called in a mini-batch": _counted(counts),
                     "time (ms)": number(1e3 * seconds)})
    return pd.DataFrame(rows)


def blas_letters(layout: str) -> str:
    """The letters of a row-major product as a column-major BLAS is called: C^T = op(B)^T op(A)^T, so the operands change places."""
    return layout[::-1].lower()


def draw_article(found: pd.DataFrame) -> Figure:
    """Draw the article's product: a group of bars a precision, a bar a way, over the time of NN."""
    mine = found[found["point"].str.startswith(ARTICLE + "-") & (found["status"] == "ok")]
    ratios = _over_nn(mine)
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(8.6, 3.2), layout="constrained")
        axes = figure.subplots()
        for place, name in enumerate(WAYS):
            values = ratios[name] if name in ratios else pd.Series(np.nan, index=ratios.index)
            axes.bar(np.arange(len(ratios)) + (place - 2.5) / 7, values, 1 / 7.5, color=COLOURS[name], label=name.replace("_", " "))
        axes.axhline(1, color=style.INK, linewidth=0.8)
        axes.axhline(3, color=COLOURS["tn"], linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate("NT in the article, 2016", (0, 3), xycoords=("axes fraction", "data"), xytext=(4, 3),
                      textcoords="offset points", fontsize=8)
        axes.set_xticks(range(len(ratios)), [str(key) for key in ratios.index.get_level_values("precision")])
        axes.set_ylabel("time over NN")
        axes.grid(axis="y")
        figure.suptitle("C = A B^T, A 1024 x 26752, B 2048 x 26752", x=0.01, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=len(WAYS))
        return figure


def draw_ratios(found: pd.DataFrame) -> Figure:
    """Draw the time of each transposed layout over NN against the product's operations, a panel a precision."""
    able = found[found["status"] == "ok"]
    precisions = list(dict.fromkeys(able["precision"]))
    with mpl.rc_context(style.STYLE):
        abreast = min(2, max(1, len(precisions)))
        rows = max(1, -(-len(precisions) // abreast))
        figure = Figure(figsize=(8.6, 0.9 + 2.4 * rows), layout="constrained")
        grid = figure.subplots(rows, abreast, squeeze=False, sharex=True, sharey=True).ravel()
        for axes in grid[len(precisions):]:
            axes.set_axis_off()
        for axes, precision in zip(grid, precisions, strict=False):
            ratios = _over_nn(able[able["precision"] == precision]).reset_index()
            flops = 2.0 * ratios["m"] * ratios["n"] * ratios["k"]
            for name in ("nt", "tn", "tt"):
                if name in ratios:
                    axes.plot(flops, ratios[name], "o", markersize=3.5, alpha=0.7, color=COLOURS[name],
                              label=name if axes is grid[0] else None)
            axes.axhline(1, color=style.INK, linewidth=0.8)
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.grid(True)
            axes.set_title(precision)
        figure.supxlabel("operations of the product", fontsize=9)
        figure.supylabel("time over NN", fontsize=9)
        figure.suptitle("What a transposed operand costs, by shape", x=0.01, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=3)
        return figure


def _over_nn(able: pd.DataFrame) -> pd.DataFrame:
    times = able.pivot_table(index=["m", "n", "k", "precision"], columns="candidate", values="seconds", sort=False)
    return times.div(times["nn"], axis=0) if "nn" in times else times


def _backward_share(known: pd.DataFrame) -> float:
    saved = known["needed"] - known["best"]
    return float(saved[known["phase"] != "forward"].sum() / saved.sum()) if saved.sum() else float("nan")


def _counted(counts: "pd.Series[Any]") -> str:
    return ", ".join(f"{count:g} {letters}" for letters, count in counts.sort_index().items())


def _ratio(found: bootstrap.Estimate) -> str:
    interval = span(found.low, found.high)
    return number(found.value) + (f" ({interval})" if interval else "")


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.1f} %"
