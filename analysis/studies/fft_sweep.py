"""fbcunn's sweep (arXiv 1412.7580): convolution by FFT against the best other algorithm, as its six heat maps and as a table.

The paper's axes: output size y, and problem size S f f' (samples times planes of input and output). Several layers share a place
on the map; it shows their geometric mean.
"""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import number
from analysis.studies.report import Part

LAYER = ["n", "c", "k", "r", "h"]
FFT = ("FFT", "FFT_TILING", "fft")
PAPER = {3: "up to 1.84", 13: "up to 23.5"}  # on a K40 against the cuDNN of 2014, the mean of three passes
ALL = "three passes"
PASSES = (ALL, "forward", "backward_data", "backward_filter")
KERNELS = (3, 5, 7, 9, 11, 13)
PROBLEM_BINS = 12  # of S f f', logarithmic


def parts(found: pd.DataFrame) -> list[Part]:
    """The sweep's part of a page: the table, and a figure a pass and arithmetic."""
    speeds = gains(found)
    speeds = pd.concat([speeds, three_passes(speeds)], ignore_index=True)
    speeds = speeds.sort_values("pass", key=lambda kinds: kinds.map(PASSES.index), kind="stable", ignore_index=True)
    maps = {f"sweep_{kind}_{math}".replace(" ", "_"): heat_maps(group, f"{str(kind).replace('_', ' ')}, {math}")
            for (kind, math), group in speeds.groupby(["pass", "math"], sort=False)}
    rows = speeds.drop(columns="point").assign(gain=speeds["gain"].round(4))  # sixty thousand
    text = ("fbcunn's sweep: 1, 16, 64 or 128 samples, 1 to 256 planes of input and output, kernels of 3 to 13, outputs of 1 to "
            f"64, stride 1, no padding. Above 1, FFT is faster. {headline(speeds)}")
    table = by_kernel(speeds)
    whole = table["pass"] == ALL
    shown, single = (table[whole], table[~whole]) if whole.any() else (table, table[whole])
    return [Part("FFT against the best other algorithm", text, {"sweep": shown}, maps, {"gains": rows},
                 {"sweep_by_pass": single} if len(single) else {})]


def headline(speeds: pd.DataFrame) -> str:
    """State the largest gain of FFT in each arithmetic with its shape, and the paper's beside the three passes' together."""
    said = []
    for math, group in speeds.groupby("math", sort=True):
        single, whole = group[group["pass"] != ALL], group[group["pass"] == ALL]
        best = single.nlargest(1, "gain").iloc[0]
        kind = str(best["pass"]).replace("_", " ")
        said.append(f"Largest gain in {math}: {number(best['gain'])} times, {kind} of {_layer(best)}.")
        if len(whole):
            largest = whole.groupby("r")["gain"].max()
            ours = ", ".join(f"{number(largest[kernel])} at {kernel} x {kernel}" for kernel in PAPER if kernel in largest)
            best = whole.nlargest(1, "gain").iloc[0]
            said.append(f"Of three passes together: {number(float(best['gain']))} times, {_layer(best)}"
                        + (f"; by kernel {ours}, where the paper has up to 1.84 at 3 x 3 and 23.5 at 13 x 13." if ours else "."))
    return " ".join(said)


def gains(found: pd.DataFrame) -> pd.DataFrame:
    """A row a layer, pass and arithmetic where both sides ran: seconds of the best FFT and of the best other, and their ratio."""
    able = found[found["status"] == "ok"].assign(is_fft=lambda table: table["candidate"].isin(FFT))
    best = able.sort_values("seconds", kind="stable").drop_duplicates(["point", "is_fft"]).sort_index()  # fifty thousand points
    sides = [best.loc[best["is_fft"] == side, ["point", *LAYER, "pass", "math", "candidate", "seconds"]] for side in (True, False)]
    both = sides[0].merge(sides[1][["point", "candidate", "seconds"]], on="point", suffixes=("", "_other"))
    return both.assign(y=both["h"] - both["r"] + 1, gain=both["seconds_other"] / both["seconds"]).drop(columns="h")


def three_passes(speeds: pd.DataFrame) -> pd.DataFrame:
    """The three passes of a layer as one row, as the paper has them: seconds added up, where all three were measured."""
    layer = [*LAYER[:4], "y", "math"]
    grouped = speeds.groupby(layer, sort=False)
    sums = grouped[["seconds", "seconds_other"]].sum().assign(passes=grouped["pass"].nunique()).reset_index()
    whole = sums[sums["passes"] == 3].assign(**{"pass": ALL, "point": "", "candidate": "FFT", "candidate_other": "best others"})
    return whole.assign(gain=whole["seconds_other"] / whole["seconds"])[list(speeds)]


def by_kernel(speeds: pd.DataFrame) -> pd.DataFrame:
    """What FFT gains by kernel size, a row a pass, arithmetic and kernel, beside the paper's numbers."""
    rows: list[dict[str, Any]] = []
    for (kind, math, kernel), group in sorted(speeds.groupby(["pass", "math", "r"]), key=lambda one: PASSES.index(one[0][0])):
        best = group.sort_values("gain").iloc[-1]
        rows.append({
            "pass": str(kind).replace("_", " "), "math": math, "kernel": f"{kernel} x {kernel}", "layers": len(group),
            "FFT is faster in": f"{100 * (group['gain'] > 1).mean():.0f} %",
            "geometric mean": number(np.exp(np.log(group["gain"]).mean())), "largest gain": number(best["gain"]),
            "there": f"{_layer(best)}: {best['candidate_other']} {number(1e3 * best['seconds_other'])} ms, "
                     f"{best['candidate']} {number(1e3 * best['seconds'])} ms",
            "in the paper, on a K40": PAPER.get(int(best["r"]), "") if kind == ALL else "",
        })
    return pd.DataFrame(rows)


def heat_maps(speeds: pd.DataFrame, title: str) -> Figure:
    """Draw the gain over output size and problem size, a panel a kernel size, on one logarithmic scale of colours."""
    sizes = sorted(speeds["y"].unique())
    problem = np.log2(speeds["n"] * speeds["c"] * speeds["k"])
    edges = np.linspace(problem.min(), problem.max() + 1e-9, PROBLEM_BINS + 1)
    place = np.clip(np.digitize(problem, edges) - 1, 0, PROBLEM_BINS - 1)
    reach = max(1.0, float(np.abs(np.log2(speeds["gain"])).max()))
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(8.6, 5.6), layout="constrained")
        grid = figure.subplots(2, 3, squeeze=False, sharex=True, sharey=True).ravel()
        for axes, kernel in zip(grid, KERNELS, strict=True):
            mine = speeds["r"] == kernel
            table = np.log2(speeds["gain"])[mine].groupby([place[mine], speeds["y"][mine]]).mean().unstack()
            image = axes.imshow(table.reindex(range(PROBLEM_BINS)).reindex(columns=sizes), origin="lower", aspect="auto",
                                cmap="RdBu", norm=TwoSlopeNorm(0, -reach, reach))
            axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
            axes.set_yticks(np.arange(0, PROBLEM_BINS, 3), [f"$2^{{{edges[bin_]:.0f}}}$" for bin_ in range(0, PROBLEM_BINS, 3)])
            best = f"up to {number(speeds['gain'][mine].max())}" if mine.any() else "not measured"
            axes.set_title(f"{kernel} x {kernel}: {best}")
        figure.supxlabel("output size y", fontsize=9)
        figure.supylabel("problem size S f f'", fontsize=9)
        bar = figure.colorbar(image, ax=list(grid), shrink=0.8)
        ticks = [tick for tick in range(-int(reach), int(reach) + 1) if tick % max(1, int(reach) // 3) == 0]
        bar.set_ticks(ticks, labels=[f"{2.0**tick:g}" for tick in ticks])
        bar.set_label("time of the best other over the best FFT")
        figure.suptitle(f"Convolution by FFT: {title}", x=0.01, ha="left", fontweight="bold")
        return figure


def _layer(row: "pd.Series[Any]") -> str:
    r, y = row["r"], row["y"]
    return f"{r} x {r}, {row['n']} samples x {row['c']} to {row['k']} planes, {y} x {y} out"
