"""What the attention study found: each implementation's speed, exactness and kernels.

Operations are those of two products, 4 B H T^2 D forward and 2.5 times as many backward; with a
causal mask half of them count. The rest of an implementation's work does not count.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.display.numbers import (
    FLOPS_UNITS,
    TIME_UNITS,
    best_unit,
    cell,
    error,
    estimate,
    number,
    percent,
)
from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW
from analysis.records.study_reader import Records, in_order, ratio, with_points
from analysis.report.roofline import ELEMENT_BYTES
from analysis.statistics import bootstrap
from analysis.studies import attention_plot
from analysis.studies.report import PASSES, Part, last_column, not_measured

Row = Mapping[Hashable, Any]
BEHIND = "JAX over PyTorch"
# Bench and candidate, in the order of tables and plots.
NAMES: Mapping[tuple[str, str], str] = {
    ("pytorch", "math"): "PyTorch math", ("pytorch", "efficient"): "PyTorch efficient",
    ("pytorch", "flash"): "PyTorch flash", ("pytorch", "cudnn"): "PyTorch cuDNN",
    ("pytorch", "flex"): "PyTorch flex", ("jax", "xla"): "JAX XLA", ("jax", "cudnn"): "JAX cuDNN",
    ("tensorflow", "keras"): "Keras on TensorFlow"}
MASKS = {"no": "none", "yes": "causal"}
SETTING = ["length", "width", "heads", "batch", "causal", "precision", "pass"]
RESULTS = ("o", "dq", "dk", "dv")
BACKWARD = 2.5
# q, k, v and o; backward reads them again with do and writes dq, dk and dv.
ARRAYS = {"forward": 4, "forward_backward": 12}
# jax-ml/jax#24934: TFLOP/s on an RTX 5090 of PyTorch and of jax.nn.dot_product_attention.
ASKED = "b8-t1024-h16-d64-unmasked-bf16-forward"
PUBLISHED = ("In jax-ml/jax#24934, an RTX 5090 reached 180 TFLOP/s in PyTorch and 126 in JAX: "
             "1.43 times as long.")
COUNTED = ("Operations: 4 B H T^2 D forward, 2.5 times as many backward; half of them with a "
           "causal mask. Operands lie on the device in the framework's layout, and the timed call "
           "is the one whose result was compared. In a map, a dash is what is not offered.")


def parts(study: Records, found: pd.DataFrame, _campaigns: Sequence[Path]) -> list[Part]:
    """Return the parts of the page."""
    table, peaks = speeds(found), peaks_of(found)
    able = table[table["status"] == "ok"]
    page = [Part("How far is JAX behind PyTorch?", answer(study, able),
                 {"frameworks": frameworks(study, able)})]
    if len(able):
        base = base_of(study, table)
        maps = {f"by_{column}": partial(attention_plot.maps, rows, column, heading)
                for column, heading, rows in slices(table, base)}
        page += [
            Part("Implementation by implementation", COUNTED, {"fastest": fastest(study, able)},
                 maps, {"speeds": shown(able)}),
            Part("Roofline", _roof_text(peaks),
                 figures={"roofline": partial(attention_plot.roofline, able, base, peaks)}
                 if base["precision"] in peaks else {}),
            Part("How exact", "Largest relative L2 error against float64 of any setting, over the "
                 "first and the last head (of sequences beyond 2,048 only the last).",
                 {"errors": errors(study)})]
    page.append(Part("What was really called", "A GPU's kernels by CUPTI, the longest first; on a "
                      "CPU the framework's operators. A candidate that calls another's kernel is "
                      "different, and has no times.", {"called": called(study)}))
    return [*page, *not_measured(found)]


def speeds(found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of attention with their name, operations, intensity, speed and share.

    `speed` is in operations per second; `share` is that of the peak of a product, nan without one.
    """
    rows = found[found["pass"].isin(PASSES)].copy()
    size = rows["batch"] * rows["heads"] * rows["length"] * rows["width"]
    passes = rows["pass"].map({"forward": 1.0, "forward_backward": 1 + BACKWARD})
    masked = rows["causal"].map({"no": 1.0, "yes": 0.5})
    operations = 4.0 * size * rows["length"] * passes * masked
    least = size * rows["pass"].map(ARRAYS) * rows["precision"].map(ELEMENT_BYTES)
    keys = zip(rows["bench"], rows["candidate"], strict=True)
    peaks = rows["precision"].map(peaks_of(found)).astype(float)
    return rows.assign(
        name=[NAMES.get(key, " ".join(key)) for key in keys], operations=operations,
        intensity=operations / least, speed=operations / rows["seconds"],
        share=operations / rows["seconds"] / peaks)


def peaks_of(found: pd.DataFrame) -> dict[str, float]:
    """Return the operations per second of a product by precision; `memory` is bytes per second."""
    able = found[found["status"] == "ok"]
    products = able[able["pass"] == "product"]
    peaks = dict(zip(products["precision"], 2.0 * products["length"].astype(float) ** 3
                     / products["seconds"], strict=True))
    memory = able[able["pass"] == "memory"]
    # Each float32 is read and written.
    if len(memory):
        peaks["memory"] = 8.0 * memory["length"].iloc[0] / memory["seconds"].iloc[0]
    return peaks


def base_of(study: Records, table: pd.DataFrame) -> dict[str, Any]:
    """Return the setting that the study varies."""
    rows = table[table["point"] == study.meta["settings"].get("base")]
    return dict((rows if len(rows) else table).iloc[0][SETTING])


def slices(table: pd.DataFrame, base: Mapping[str, Any]
           ) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (column, heading, rows) of each map: what varies, and the rows with the base's rest.

    A map over lengths has all masks, the others the base's length and mask.
    """
    found = []
    for column, heading in (("length", "sequence length T"), ("precision", "precision"),
                            ("width", "head size D"), ("heads", "heads H")):
        kept = {"width", "heads", "precision"} - {column}
        if column != "length":
            kept |= {"length", "causal"}
        rows = table[(table[list(kept)] == pd.Series(base)[list(kept)]).all(axis=1)]
        if column == "length" or rows[column].nunique() > 1:
            found.append((column, heading, rows))
    return found


def frameworks(study: Records, able: pd.DataFrame) -> pd.DataFrame:
    """Compare each framework's fastest implementation by setting, JAX's with PyTorch's."""
    unit, scale = best_unit(able["speed"], FLOPS_UNITS)
    rows = []
    for _, group in able.groupby("point", sort=False):
        best = fastest_of_each(group)
        cells = {f"{bench} ({unit})": f"{number(row['speed'] / scale)}, {row['candidate']}"
                 for bench, row in best.items()}
        longer = behind(study, best)
        rows.append({**_setting(group.iloc[0].to_dict()), **cells,
                     BEHIND: estimate(longer) if longer else ""})
    return last_column(pd.DataFrame(rows).fillna(""), BEHIND)


def fastest_of_each(group: pd.DataFrame) -> dict[str, Row]:
    """Return the fastest row of each framework, of the rows of one setting."""
    best = group.loc[group.groupby("bench", sort=False)["seconds"].idxmin()]
    return {row["bench"]: row for row in best.to_dict("records")}


def behind(study: Records, best: Mapping[str, Row]) -> bootstrap.Estimate | None:
    """Return JAX's time over PyTorch's, of the fastest row of each; None where one is missing."""
    return ratio(study, best["jax"], best["pytorch"]) if {"jax", "pytorch"} <= set(best) else None


def answer(study: Records, able: pd.DataFrame) -> str:
    """Say how far JAX's fastest implementation is behind PyTorch's, at the base and over all."""
    ratios = {}
    for name, group in able.groupby("point", sort=False):
        best = fastest_of_each(group)
        if longer := behind(study, best):
            ratios[str(name)] = longer, best
    if not ratios:
        return "JAX and PyTorch have no setting in common that both measured."
    point = next((name for name in (ASKED, study.meta["settings"].get("base")) if name in ratios),
                 next(iter(ratios)))
    longer, best = ratios[point]
    unit, scale = best_unit([best["pytorch"]["speed"]], FLOPS_UNITS)
    said = ", ".join(f"{best[bench]['name']} {number(best[bench]['speed'] / scale)}"
                     for bench in ("pytorch", "jax"))
    values = [each.value for each, _ in ratios.values()]
    mean = float(np.exp(np.log(values).mean()))
    text = (f"At {_words(best['pytorch'])} ({unit}): {said}. JAX takes "
            f"{estimate(longer)} times as long. Over "
            f"{len(values)} settings it takes {number(min(values))} to {number(max(values))} times "
            f"as long, in the geometric mean {number(mean)}. Each framework has its fastest "
            "implementation.")
    return f"{text} {PUBLISHED}" if point == ASKED else text


def fastest(study: Records, able: pd.DataFrame) -> pd.DataFrame:
    """Name the fastest implementation of each setting, if its interval lies below the next one's.
    """
    time_unit, time_scale = best_unit(able["seconds"], TIME_UNITS)
    unit, scale = best_unit(able["speed"], FLOPS_UNITS)
    rows = []
    for _, group in able.groupby("point", sort=False):
        first, *others = group.sort_values("seconds").to_dict("records")
        line = {**_setting(first), "fastest": first["name"],
                f"time ({time_unit})": cell(first, "seconds", time_scale),
                unit: number(first["speed"] / scale), "share of the peak": percent(first["share"]),
                "next": "", "takes times as long": "", "verdict": ""}
        if others:
            longer = ratio(study, others[0], first)
            verdict = NO_DIFFERENCE if longer.contains(1.0) else "faster"
            line |= {"next": others[0]["name"], "takes times as long": estimate(longer),
                     "verdict": verdict if longer.has_interval else TOO_FEW}
        rows.append(line)
    return pd.DataFrame(rows)


def shown(able: pd.DataFrame) -> pd.DataFrame:
    """Return every measured row with plain numbers."""
    columns = ["bench", "candidate", *SETTING, "seconds", "seconds_low", "seconds_high", "error"]
    return able[columns].assign(operations_per_second=able["speed"].map("{:.5g}".format),
                                share_of_peak=able["share"].round(4),
                                operations_per_byte=able["intensity"].round(2))


def errors(study: Records) -> pd.DataFrame:
    """Return the largest error of each result by implementation and precision."""
    rows = []
    groups = with_points(study, "errors").groupby(["bench", "candidate", "precision"], sort=False)
    for (bench, candidate, precision), group in groups:
        parts = pd.DataFrame([dict(part.split("=") for part in text.split())
                              for text in group["errors"]])
        worst = parts.astype(float).reindex(columns=list(RESULTS)).max()
        rows.append({"implementation": NAMES.get((str(bench), str(candidate)), str(candidate)),
                     "precision": str(precision), **worst.map(error)})
    order = {name: place for place, name in enumerate(NAMES.values())}
    table = pd.DataFrame(rows, columns=["implementation", "precision", *RESULTS])
    return table.sort_values(
        ["precision", "implementation"], ignore_index=True,
        key=lambda names: names.map(lambda name: order.get(name, name)))


def called(study: Records) -> pd.DataFrame:
    """Return what each implementation called, by pass and precision, at the first setting of each.
    """
    raw = with_points(study, "kernels")
    raw = in_order(study, raw[raw["pass"].isin(PASSES)])
    rows = []
    groups = raw.groupby(["bench", "candidate", "precision", "pass"], sort=False)
    for (bench, candidate, precision, kind), group in groups:
        names = group["kernels"].iloc[0].split("; ")
        more = f"; and {len(names) - 3} more" if len(names) > 3 else ""
        rows.append({"implementation": NAMES.get((str(bench), str(candidate)), candidate),
                     "precision": precision, "pass": PASSES[str(kind)],
                     "settings": len(group), "called at the first": "; ".join(names[:3]) + more})
    return pd.DataFrame(rows, columns=["implementation", "precision", "pass", "settings",
                                       "called at the first"])


def _setting(row: Row) -> dict[str, Any]:
    return {"T": row["length"], "D": row["width"], "H": row["heads"], "B": row["batch"],
            "mask": MASKS[row["causal"]], "precision": row["precision"],
            "pass": PASSES[row["pass"]]}


def _words(row: Row) -> str:
    mask = "causal mask" if row["causal"] == "yes" else "no mask"
    return (f"B {row['batch']}, T {row['length']}, H {row['heads']}, D {row['width']}, "
            f"{row['precision']}, {mask}, {PASSES[row['pass']]}")


def _roof_text(peaks: Mapping[str, float]) -> str:
    if "memory" not in peaks:
        return "PyTorch measures the peaks; without it there is no roofline."
    products = {name: value for name, value in peaks.items() if name != "memory"}
    unit, scale = best_unit(products.values(), FLOPS_UNITS)
    listed = ", ".join(f"{number(value / scale)} {unit} in {name}"
                       for name, value in products.items())
    return (f"Measured here by PyTorch: square products {listed}; memory "
            f"{number(peaks['memory'] / 1e9)} GB/s. Intensity counts each operand and result once, "
            "so what an implementation writes between does not count.")
