"""What the layers study found: one layer at a time, the frameworks beside each other, and what layout and precision change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, span
from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW
from analysis.records import study_reader
from analysis.studies import report
from analysis.studies.report import Part

PASSES = {"forward": "forward", "forward_backward": "forward and backward"}


def write(folders: Sequence[str | Path], out: Path) -> Path:
    """Write the report of a layers study and return its page."""
    study = study_reader.read(folders)
    found = study_reader.estimates(study)
    able = (found["status"] == "ok").any()
    missing = pd.concat([study_reader.refused(found).astype(str), absent(study.meta["settings"]["refused"])]).fillna("")
    parts = [
        Part("Layer by layer", "Time of one layer alone: forward, and forward with the gradients of all its float inputs. Each was "
             "equal to the NumPy float64 reference in output and gradients before it was timed.",
             {"layers": by_layer(found), "sizes": sizes(study.points)},
             {"layers": draw(found)} if able else {}, {"measured": found}),
        Part("What a layout and half precision change", "Forward and backward of one framework: time in NHWC over that in "
             "NCHW, and in fp16 over that in fp32.", {"changes": changes(found)}),
        Part("How far from the reference", "Largest relative L2 error of output or of any gradient.", {"errors": errors(found)}),
        Part("Not measured, and why", "", {"refused": missing}),
    ]
    return report.write(study, "Single layers over the frameworks", parts, out)


def by_layer(found: pd.DataFrame) -> pd.DataFrame:
    """A row a layer, layout, precision and pass; a column a framework: its time and interval, or its status."""
    rows = []
    for (_, candidate), group in found.groupby(["point", "candidate"], sort=False):
        if candidate not in PASSES:
            continue
        first = group.iloc[0]
        unit, scale = best_unit(group["seconds"], TIME_UNITS)
        cells = {row["bench"]: _cell(row, scale) for _, row in group.iterrows()}
        able = group[group["status"] == "ok"].sort_values("seconds")
        rows.append({"layer": first["layer"].replace("_", " "), "layout": first["layout"] if first["layout"] != "none" else "",
                     "precision": first["precision"], "pass": PASSES[str(candidate)], "unit": unit, **cells,
                     "fastest": _fastest(able)})
    table = pd.DataFrame(rows).fillna("")
    return table[[*(column for column in table if column != "fastest"), "fastest"]] if len(table) else table


def sizes(points: pd.DataFrame) -> pd.DataFrame:
    """What each layer computes, in words."""
    told = points.drop(columns=["layout", "precision"]).drop_duplicates("layer")
    return pd.DataFrame([{"layer": str(row.pop("layer")).replace("_", " "),
                          "size": ", ".join(f"{name} {value}" for name, value in row.items() if str(value))}
                         for row in told.to_dict("records")])


def changes(found: pd.DataFrame) -> pd.DataFrame:
    """A row a framework and layer: NHWC over NCHW (fp32), and fp16 over fp32 (its first layout), of forward and backward."""
    able = found[(found["status"] == "ok") & (found["candidate"] == "forward_backward")]
    rows = []
    for (bench, layer), group in able.groupby(["bench", "layer"], sort=False):
        seconds = {(row["layout"], row["precision"]): row["seconds"] for _, row in group.iterrows()}
        layout = "nchw" if "nchw" in set(group["layout"]) else "none"
        rows.append({"framework": bench, "layer": str(layer).replace("_", " "),
                     "NHWC / NCHW": number(seconds.get(("nhwc", "fp32"), np.nan) / seconds.get(("nchw", "fp32"), np.nan)),
                     "fp16 / fp32": number(seconds.get((layout, "fp16"), np.nan) / seconds.get((layout, "fp32"), np.nan))})
    return pd.DataFrame([row for row in rows if row["NHWC / NCHW"] or row["fp16 / fp32"]])


def errors(found: pd.DataFrame) -> pd.DataFrame:
    """The largest error of each framework by precision, and of which layer."""
    known = found[found["error"].notna()]
    worst = known.loc[known.groupby(["bench", "precision"])["error"].idxmax()]
    return pd.DataFrame({"framework": worst["bench"], "precision": worst["precision"],
                         "largest": [f"{error:.1e}" for error in worst["error"]],
                         "of": worst["point"] + ", " + worst["candidate"].map(PASSES)})


def absent(reasons: dict[str, str]) -> pd.DataFrame:
    """The frameworks that are not in the study at all."""
    return pd.DataFrame([{"framework": name, "status": "unsupported", "reason": reason} for name, reason in reasons.items()])


def draw(found: pd.DataFrame) -> Figure:
    """Draw each framework's forward and backward over the fastest's, a row a layer in fp32 and its first layout."""
    able = found[(found["status"] == "ok") & (found["candidate"] == "forward_backward") & (found["layout"] != "nhwc")]
    able = able[able["precision"] == able["precision"].iloc[0]] if len(able) else able
    layers = list(dict.fromkeys(able["layer"]))
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(8.6, 1.3 + 0.36 * len(layers)), layout="constrained")
        axes = figure.subplots()
        for bench, group in able.groupby("bench", sort=False):
            colour, marker = palette.FRAMEWORKS.get(str(bench), palette.OTHER)
            best = able.groupby("layer")["seconds"].min()
            places = [layers.index(name) for name in group["layer"]]
            ratios = group["seconds"].to_numpy() / best[group["layer"]].to_numpy()
            axes.plot(ratios, places, marker, color=colour, label=str(bench))
        axes.set_yticks(range(len(layers)), [name.replace("_", " ") for name in layers])
        axes.set_ylim(len(layers) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.axvline(1, color=style.INK, linewidth=0.8)
        axes.grid(axis="x")
        axes.set_xlabel("time of forward and backward over the fastest framework's")
        figure.suptitle("Single layers over the frameworks", x=0.01, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=5)
        return figure


def _fastest(able: pd.DataFrame) -> str:
    """The first of `able`, sorted by time, where its interval lies below the second's."""
    if len(able) < 2:
        return ""
    high, low = float(able.iloc[0]["seconds_high"]), float(able.iloc[1]["seconds_low"])
    if pd.isna(high) or pd.isna(low):
        return TOO_FEW
    return str(able.iloc[0]["bench"]) if high < low else NO_DIFFERENCE


def _cell(row: "pd.Series[Any]", scale: float) -> str:
    if row["status"] != "ok":
        return str(row["status"])
    interval = span(row["seconds_low"] / scale, row["seconds_high"] / scale)
    return number(row["seconds"] / scale) + (f" ({interval})" if interval else "")
