"""fbcunn's sweep (arXiv 1412.7580): FFT against the best other algorithm, as maps and a table.

The paper's axes are the output size y and the problem size S f f' (samples times planes of input
and output). Several layers share a place on the map, which shows their geometric mean.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import number
from analysis.studies.report import NO_TIER, Part

LAYER = ["n", "c", "k", "r", "h"]
FFT = ("FFT", "FFT_TILING", "fft")
# On a K40 against the cuDNN of 2014, the mean of three passes.
PAPER = {3: "up to 1.84", 13: "up to 23.5"}
ALL = "three passes"
PASSES = (ALL, "forward", "backward_data", "backward_filter")
KERNELS = (3, 5, 7, 9, 11, 13)
# Of S f f', logarithmic.
PROBLEM_BINS = 12


def parts(found: pd.DataFrame) -> list[Part]:
    """Return the sweep's part of a page: the table, and a figure for each pass and arithmetic."""
    speeds = gains(found)
    speeds = pd.concat([speeds, three_passes(speeds)], ignore_index=True)
    speeds = speeds.sort_values("pass", key=lambda kinds: kinds.map(PASSES.index), kind="stable",
                                ignore_index=True)
    maps = {f"sweep_{kind}_{math}".replace(" ", "_"):
            partial(heat_maps, group, f"{str(kind).replace('_', ' ')}, {math}")
            for (kind, math), group in speeds.groupby(["pass", "math"], sort=False)}
    # Sixty thousand rows.
    rows = speeds.drop(columns="point").assign(gain=speeds["gain"].round(4))
    text = ("fbcunn's sweep: 1, 16, 64 or 128 samples, 1 to 256 planes of input and output. "
            "Kernels of 3 to 13, outputs of 1 to 64. Stride 1, no padding. Above 1, FFT is faster. "
            f"{NO_TIER.format(library='cuDNN')} {headline(speeds)}")
    table = by_kernel(speeds)
    whole = table["pass"] == ALL
    shown, folded = (table[whole], table[~whole]) if whole.any() else (table, table[whole])
    return [Part("FFT against the best other algorithm", text, {"sweep": shown}, maps,
                 {"gains": rows}, {"sweep_by_pass": folded} if len(folded) else {})]


def headline(speeds: pd.DataFrame) -> str:
    """State the largest gain of FFT in each arithmetic, and beside it the paper's."""
    said = []
    for math, group in speeds.groupby("math", sort=True):
        single, whole = group[group["pass"] != ALL], group[group["pass"] == ALL]
        best = single.nlargest(1, "gain").iloc[0]
        kind = str(best["pass"]).replace("_", " ")
        said.append(f"Largest gain in {math}: {number(best['gain'])} times, "
                    f"{kind} of {_layer(best)}.")
        if whole.empty:
            continue
        largest, best = whole.groupby("r")["gain"].max(), whole.nlargest(1, "gain").iloc[0]
        ours = ", ".join(f"{number(largest[kernel])} at {kernel} x {kernel}"
                         for kernel in PAPER if kernel in largest)
        said.append(f"The largest gain of three passes together is {number(best['gain'])} times, "
                    f"at {_layer(best)}.")
        if ours:
            said.append(f"By kernel it is {ours}. "
                        "The paper has up to 1.84 at 3 x 3 and 23.5 at 13 x 13.")
    return " ".join(said)


def gains(found: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of the best FFT and of the best other algorithm, and their ratio.

    A row is a layer, pass and arithmetic in which both ran.
    """
    able = found[found["status"] == "ok"]
    able = able.assign(is_fft=able["candidate"].isin(FFT)).sort_values("seconds", kind="stable")
    # Faster than pandas' groups: there are fifty thousand points.
    best = able.drop_duplicates(["point", "is_fft"]).sort_index()
    columns = ["point", *LAYER, "pass", "math", "candidate", "seconds"]
    ours, others = (best.loc[best["is_fft"] == side, columns] for side in (True, False))
    both = ours.merge(others[["point", "candidate", "seconds"]], on="point",
                      suffixes=("", "_other"))
    return both.assign(y=both["h"] - both["r"] + 1,
                       gain=both["seconds_other"] / both["seconds"]).drop(columns="h")


def three_passes(speeds: pd.DataFrame) -> pd.DataFrame:
    """Add up the three passes of a layer, as the paper does, if all three were measured."""
    grouped = speeds.groupby([*LAYER[:4], "y", "math"], sort=False)
    sums = grouped[["seconds", "seconds_other"]].sum()
    whole = sums[grouped["pass"].nunique() == 3].reset_index()
    whole = whole.assign(**{"pass": ALL, "point": "", "candidate": "FFT",
                            "candidate_other": "best others"})
    return whole.assign(gain=whole["seconds_other"] / whole["seconds"])[list(speeds)]


def by_kernel(speeds: pd.DataFrame) -> pd.DataFrame:
    """Return what FFT gains by pass, arithmetic and kernel size, beside the paper's numbers."""
    rows: list[dict[str, Any]] = []
    groups = sorted(speeds.groupby(["pass", "math", "r"]), key=lambda one: PASSES.index(one[0][0]))
    for (kind, math, kernel), group in groups:
        best = group.sort_values("gain").iloc[-1]
        rows.append({
            "pass": str(kind).replace("_", " "), "math": math, "kernel": f"{kernel} x {kernel}",
            "layers": len(group), "FFT is faster in": f"{100 * (group['gain'] > 1).mean():.0f} %",
            "geometric mean": number(np.exp(np.log(group["gain"]).mean())),
            "largest gain": number(best["gain"]),
            "there": f"{_layer(best)}: {best['candidate_other']} "
                     f"{number(1e3 * best['seconds_other'])} ms, "
                     f"{best['candidate']} {number(1e3 * best['seconds'])} ms",
            "in the paper, on a K40": PAPER.get(int(best["r"]), "") if kind == ALL else ""})
    return pd.DataFrame(rows)


@style.styled
def heat_maps(speeds: pd.DataFrame, title: str) -> Figure:
    """Draw the gain over output and problem size, a panel for each kernel size, on one scale."""
    sizes = sorted(speeds["y"].unique())
    problem = np.log2(speeds["n"] * speeds["c"] * speeds["k"])
    edges = np.linspace(problem.min(), problem.max() + 1e-9, PROBLEM_BINS + 1)
    place = np.clip(np.digitize(problem, edges) - 1, 0, PROBLEM_BINS - 1)
    logs = np.log2(speeds["gain"])
    reach = max(1.0, float(np.abs(logs).max()))
    figure = Figure(figsize=(style.WIDTH, 5.6), layout="constrained")
    grid = figure.subplots(2, 3, squeeze=False, sharex=True, sharey=True).ravel()
    ticks = range(0, PROBLEM_BINS, 3)
    for axes, kernel in zip(grid, KERNELS, strict=True):
        mine = speeds["r"] == kernel
        table = logs[mine].groupby([place[mine], speeds["y"][mine]]).mean().unstack()
        image = axes.imshow(table.reindex(range(PROBLEM_BINS)).reindex(columns=sizes),
                            origin="lower", aspect="auto", cmap="RdBu",
                            norm=TwoSlopeNorm(0, -reach, reach))
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_yticks(ticks, [f"$2^{{{edges[tick]:.0f}}}$" for tick in ticks])
        best = f"up to {number(speeds['gain'][mine].max())}" if mine.any() else "not measured"
        axes.set_title(f"{kernel} x {kernel}: {best}")
    figure.supxlabel("output size y", fontsize=9)
    figure.supylabel("problem size S f f'", fontsize=9)
    bar = figure.colorbar(image, ax=list(grid), shrink=0.8)
    step, most = max(1, int(reach) // 3), int(reach)
    powers = [power for power in range(-most, most + 1) if power % step == 0]
    bar.set_ticks(powers, labels=[f"{2.0**power:g}" for power in powers])
    bar.set_label("time of the best other over the best FFT")
    style.finish(figure, f"Convolution by FFT: {title}")
    return figure


def _layer(row: "pd.Series[Any]") -> str:
    return (f"{row['r']} x {row['r']}, {row['n']} samples x {row['c']} to {row['k']} planes, "
            f"{row['y']} x {row['y']} out")
