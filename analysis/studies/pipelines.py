"""What the pipelines study found: frames a second from files to answers, and what limits them.

Times are of one frame. `load` is a loader's three stages together; `overlapped` runs them beside
the engine, so it takes at least as long as the slower of `load` and `infer`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.display import style
from analysis.display.numbers import cell, error, estimate, number, with_span
from analysis.display.ranking import TOO_FEW
from analysis.records.study_reader import Records, in_order, ratio, with_points
from analysis.statistics.bootstrap import Estimate
from analysis.studies.report import Part, not_measured

LOADING = ("decode", "resize", "normalise")
STAGES = (*LOADING, "load", "infer", "in_turn", "overlapped")
COLOURS = {"decode": "#0072b2", "resize": "#56b4e9", "normalise": "#009e73", "infer": "#e69f00"}
# A pipeline that takes at most so many times as long as its slower part is limited by it.
LIMITED = 1.05
ROW = ["source", "loader", "bench", "streams"]
LIBRARIES = {
    "pillow": "Pillow, Pillow, NumPy", "pyav": "PyAV, Pillow, NumPy",
    "torch": "Pillow or PyAV, PyTorch, PyTorch", "opencv": "OpenCV, OpenCV, NumPy",
    "tensorflow": "tf.data, tf.image, TensorFlow", "dali": "DALI, DALI, DALI",
    "torchcodec": "torchcodec, PyTorch, PyTorch", "pynvvideocodec": "NVDEC, PyTorch, PyTorch"}
RULE = ("Each part ran alone, with the same frames and batches. Overlapped, a thread a stream "
        "loads batches while the engine answers earlier ones. The loader or the inference limits "
        f"a pipeline that takes at most {LIMITED} times as long as this part alone.")
PROOF = ("Differences are levels of 255, the mean of the worst frame and the largest of any pixel. "
         "Decoded frames are compared with Pillow's or PyAV's; resized ones with the declared "
         "filter in float64; answers with the float64 reference's for the reference's pixels, in "
         "units of how answers differ between frames. A triangle is bilinear with antialiasing.")


def parts(study: Records, found: pd.DataFrame, _campaigns: Sequence[Path]) -> list[Part]:
    """Return the parts of the page."""
    able = found[found["status"] == "ok"]
    whole = whole_pipelines(study, able)
    page = [Part("How many frames a second, and what limits them?", answer(whole) + " " + RULE,
                 {"pipelines": shown(whole)}, {"pipelines": partial(draw, able)} if whole else {}),
            Part("Stage by stage", "Milliseconds a frame of each part alone.",
                 {"stages": stages(able)}, files={"measured": found}),
            Part("The same pixels and answers?", PROOF, {"pixels": pixels(study)})]
    return [*page, *not_measured(found)]


def whole_pipelines(study: Records, able: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each pipeline whose every part was measured, the fastest of a source first.
    """
    rows = []
    for _, group in able.groupby("point", sort=False):
        parts = {row["candidate"]: row for row in group.to_dict("records")}
        if not set(STAGES) <= set(parts):
            continue
        seconds = {name: row["seconds"] for name, row in parts.items()}
        slower = max(("load", "infer"), key=lambda name: seconds[name])
        over, turned = (ratio(study, parts["overlapped"], parts[other])
                        for other in (slower, "in_turn"))
        stage = max(LOADING, key=lambda name: seconds[name])
        rows.append({
            **{key: parts["overlapped"][key] for key in ROW}, "parts": parts, "over": over,
            "limit": limit_of(slower, stage, over, turned)})
    return sorted(rows, key=lambda row: (row["source"], row["streams"],
                                         row["parts"]["overlapped"]["seconds"]))


def limit_of(slower: str, stage: str, over: Estimate, turned: Estimate) -> str:
    """Name what limits a pipeline.

    `over` is its time over that of its slower part alone, `turned` over that of all in turn.
    """
    name = "inference" if slower == "infer" else f"the loader, mostly {stage}"
    if not over.has_interval:
        return TOO_FEW
    if over.high <= LIMITED:
        return name
    if over.low <= LIMITED:
        return f"{name}, or what overlapping costs"
    gain = "hides a part" if turned.high < 1 else "gains nothing"
    return f"shared cores: overlapping {gain}; longest: {name}"


def answer(whole: Sequence[Mapping[str, Any]]) -> str:
    """Name the fastest pipeline of each source with one stream, and what limits it."""
    first = {row["source"]: row for row in reversed(whole) if row["streams"] == 1}
    if not first:
        return "No pipeline was measured whole."
    said = [f"{row['loader']} for {source}, {rate(row['parts']['overlapped'])} frames a second"
            f" (limit: {row['limit']})" for source, row in sorted(first.items())]
    return f"With one stream the fastest is {'; '.join(said)}."


def rate(row: Mapping[str, Any]) -> str:
    """Write frames a second with their interval."""
    return with_span(*(1 / row[name] for name in ("seconds", "seconds_high", "seconds_low")))


def shown(whole: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of whole pipelines, in frames a second."""
    return pd.DataFrame([{
        **named(row), **{f"{part.replace('_', ' ')} (frames/s)": rate(row["parts"][part])
                         for part in ("load", "infer", "in_turn", "overlapped")},
        "over the slower part": estimate(row["over"]),
        "limit": row["limit"]} for row in whole])


def named(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the columns that name a pipeline."""
    return {"framework" if key == "bench" else key: row[key] for key in ROW}


def stages(able: pd.DataFrame) -> pd.DataFrame:
    """Return milliseconds a frame of each part alone."""
    rows = []
    for _, group in able.groupby("point", sort=False):
        parts = {row["candidate"]: row for row in group.to_dict("records")}
        first = next(iter(parts.values()))
        cells = {name: cell(parts[name], "seconds", 1e-3) if name in parts else ""
                 for name in (*LOADING, "infer")}
        rows.append({**named(first), "by": LIBRARIES.get(first["loader"], ""), **cells})
    return pd.DataFrame(rows)


def pixels(study: Records) -> pd.DataFrame:
    """Return how far each pipeline's pixels and answers are from the reference's, at worst."""
    rows = []
    for _, group in in_order(study, with_points(study, "errors")).groupby("point", sort=False):
        facts: dict[str, dict[str, float]] = {}
        for stage, text in zip(group["candidate"], group["errors"], strict=True):
            known = facts.setdefault(stage, {})
            for word in text.split():
                key, _, value = word.partition("=")
                known[key] = float(np.fmax(known.get(key, -np.inf), float(value)))
        first, status = group.iloc[0].to_dict(), set(group["status"])
        rows.append({
            **named(first), "filter": first["filter"],
            "decoded": _pair(facts, "decode"), "resized": _pair(facts, "resize"),
            "normalised": _mean(facts, "normalise"), "engine": _mean(facts, "infer"),
            "pipeline": _mean(facts, "overlapped"),
            "other largest answer": number(facts.get("overlapped", {}).get("argmax", np.nan)),
            "verdict": "same" if status == {"ok"} else ", ".join(sorted(status - {"ok"}))})
    return pd.DataFrame(rows)


@style.styled
def draw(able: pd.DataFrame) -> Figure:
    """Draw a bar a pipeline of its stages alone, and marks where all of them together end."""
    whole = able.pivot_table("seconds", [*ROW, "point"], "candidate", sort=False).dropna()
    order = whole.reset_index().sort_values(["source", "streams", "overlapped"])
    labels = [f"{row['source']}, {row['loader']}"
              + (f", {row['streams']} streams" if row["streams"] > 1 else "")
              for row in order.to_dict("records")]
    figure, axes = style.bars(labels)
    style.stack(axes, {name: 1e3 * order[name].to_numpy() for name in COLOURS}, COLOURS)
    places = range(len(order))
    axes.plot(1e3 * order["in_turn"], places, "D", color=style.INK, markersize=5,
              markerfacecolor="none", linestyle="none", label="all in turn")
    spans = able[able["candidate"] == "overlapped"].set_index("point").loc[order["point"]]
    ends = [1e3 * (spans["seconds"] - spans["seconds_low"]).fillna(0),
            1e3 * (spans["seconds_high"] - spans["seconds"]).fillna(0)]
    axes.errorbar(1e3 * order["overlapped"], places, xerr=np.array(ends), fmt="o", capsize=3,
                  color=style.INK, markersize=5, label="overlapped")
    axes.set_xlabel("milliseconds a frame")
    # The order of drawing is another one.
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    style.finish(figure, "Each stage alone, and all of them together",
                 [handles[name] for name in (*COLOURS, "all in turn", "overlapped")], columns=6)
    return figure


def _pair(facts: Mapping[str, Mapping[str, float]], stage: str) -> str:
    known = facts.get(stage, {})
    return ", ".join(f"{number(known[name])} {name}" for name in ("mean", "max") if name in known)


def _mean(facts: Mapping[str, Mapping[str, float]], stage: str) -> str:
    return error(facts.get(stage, {}).get("mean", np.nan))
