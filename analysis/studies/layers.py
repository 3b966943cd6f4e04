"""What the layers study found: each layer in each framework, layout and precision."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, style
from analysis.display.numbers import TIME_UNITS, best_unit, cell, error, number
from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW
from analysis.records import study_reader
from analysis.records.study_reader import Records
from analysis.studies.report import PASSES, Part, last_column

# Why a difference may be one of tiers.
TIER = ("JAX compiles the call. TensorFlow runs a tf.function without XLA, as in its tier "
        "uncompiled. The others call operations one by one, as in their tier stock. A difference "
        "between them is also one of tiers.")


def parts(study: Records, found: pd.DataFrame, _campaigns: Sequence[Path]) -> list[Part]:
    """Return the parts of the page."""
    able = (found["status"] == "ok").any()
    absent = pd.DataFrame([{"framework": name, "status": "unsupported", "reason": reason}
                           for name, reason in study.setting("refused").items()])
    missing = pd.concat([study_reader.refused(found).astype(str), absent]).fillna("")
    return [
        Part("Layer by layer", "Time of one layer alone: forward, and forward with the gradients "
             "of all its float inputs. Output and gradients equalled those of the NumPy float64 "
             "reference before the layer was timed. " + TIER,
             {"layers": by_layer(found), "sizes": sizes(study.points)},
             {"layers": partial(draw, found)} if able else {}, {"measured": found}),
        Part("What a layout and half precision change", "Forward and backward of one framework: "
             "time in NHWC over that in NCHW, and in fp16 over that in fp32.",
             {"changes": changes(found)}),
        Part("How far from the reference", "Largest relative L2 error of output or of any "
             "gradient.", {"errors": errors(found)}),
        Part("Not measured, and why", tables={"refused": missing}),
    ]


def by_layer(found: pd.DataFrame) -> pd.DataFrame:
    """Return each framework's time and interval, or its status, for each layer and pass."""
    rows = []
    for (_, candidate), group in found.groupby(["point", "candidate"], sort=False):
        if candidate not in PASSES:
            continue
        first = group.iloc[0]
        unit, scale = best_unit(group["seconds"], TIME_UNITS)
        cells = {row["bench"]: cell(row, "seconds", scale) if row["status"] == "ok"
                 else row["status"] for _, row in group.iterrows()}
        able = group[group["status"] == "ok"].sort_values("seconds")
        rows.append({"layer": first["layer"].replace("_", " "),
                     "layout": first["layout"] if first["layout"] != "none" else "",
                     "precision": first["precision"], "pass": PASSES[str(candidate)], "unit": unit,
                     **cells, "fastest": _fastest(able)})
    return last_column(pd.DataFrame(rows).fillna(""), "fastest")


def sizes(points: pd.DataFrame) -> pd.DataFrame:
    """Describe the size of each layer."""
    rows = points.drop(columns=["layout", "precision"]).drop_duplicates("layer").to_dict("records")
    return pd.DataFrame([{
        "layer": row.pop("layer").replace("_", " "),
        "size": ", ".join(f"{name} {value}" for name, value in row.items() if str(value))}
        for row in rows])


def changes(found: pd.DataFrame) -> pd.DataFrame:
    """Return NHWC over NCHW (fp32), and fp16 over fp32 (the layer's first layout)."""
    able = found[(found["status"] == "ok") & (found["candidate"] == "forward_backward")]
    rows = []
    for (bench, layer), group in able.groupby(["bench", "layer"], sort=False):
        layouts = group.set_index(["layout", "precision"])["seconds"].to_dict()
        layout = "nchw" if "nchw" in set(group["layout"]) else "none"

        def over(a: tuple[str, str], b: tuple[str, str], seconds: Any = layouts) -> str:
            return number(seconds.get(a, np.nan) / seconds.get(b, np.nan))

        rows.append({"framework": bench, "layer": str(layer).replace("_", " "),
                     "NHWC / NCHW": over(("nhwc", "fp32"), ("nchw", "fp32")),
                     "fp16 / fp32": over((layout, "fp16"), (layout, "fp32"))})
    return pd.DataFrame([row for row in rows if row["NHWC / NCHW"] or row["fp16 / fp32"]])


def errors(found: pd.DataFrame) -> pd.DataFrame:
    """Return the largest error of each framework by precision, and its layer."""
    known = found[found["error"].notna()]
    worst = known.loc[known.groupby(["bench", "precision"])["error"].idxmax()]
    return pd.DataFrame({"framework": worst["bench"], "precision": worst["precision"],
                         "largest": worst["error"].map(error),
                         "of": worst["point"] + ", " + worst["candidate"].map(PASSES)})


@style.styled
def draw(found: pd.DataFrame) -> Figure:
    """Draw forward and backward over the fastest framework's, in fp32 and the first layout."""
    able = found[(found["status"] == "ok") & (found["candidate"] == "forward_backward")
                 & (found["layout"] != "nhwc")]
    able = able[able["precision"] == able["precision"].iloc[0]] if len(able) else able
    layers = list(dict.fromkeys(able["layer"]))
    best = able.groupby("layer")["seconds"].min()
    figure, axes = style.bars([name.replace("_", " ") for name in layers])
    for bench, group in able.groupby("bench", sort=False):
        colour, marker = palette.FRAMEWORKS.get(str(bench), palette.OTHER)
        places = [layers.index(name) for name in group["layer"]]
        ratios = group["seconds"].to_numpy() / best[group["layer"]].to_numpy()
        axes.plot(ratios, places, marker, color=colour, label=str(bench))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color=style.INK, linewidth=0.8)
    axes.set_xlabel("time of forward and backward over the fastest framework's (log scale)")
    style.finish(figure, "Single layers over the frameworks", columns=5)
    return figure


def _fastest(able: pd.DataFrame) -> str:
    """Name the first of `able`, sorted by time, if its interval lies below the second's."""
    if len(able) < 2:
        return ""
    high, low = able["seconds_high"].iloc[0], able["seconds_low"].iloc[1]
    if pd.isna(high) or pd.isna(low):
        return TOO_FEW
    return str(able["bench"].iloc[0]) if high < low else NO_DIFFERENCE


