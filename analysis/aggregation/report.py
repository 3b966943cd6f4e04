"""Writes the page of `dlbench study aggregation`: links, predicted and measured times, what-if.

The tables of numbers lie beside it as fits.csv, predictions.csv, overlap.csv and what_if.csv.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.aggregation import links, plots, predictions, what_if
from analysis.aggregation.predictions import TRIAL
from analysis.display import numbers, page, provenance
from analysis.display.numbers import (
    BYTE_UNITS,
    TIME_UNITS,
    best_unit,
    cell,
    number,
    with_unit,
)
from analysis.display.page import Facts, Figure, Page, Section, Table, Text, tabled
from analysis.records import reader, study_reader
from analysis.records.reader import Campaign
from analysis.report.scaling import COUNTERS
from analysis.statistics.bootstrap import MINIMUM_PROCESSES

SENT, RECEIVED = "nvlink_bytes_per_step", "pcie_rx_bytes_per_step"
TARGET = 0.2  # of the model: predicted within 20 % of what was measured

PREDICTED_NOTE = (
    "Predicted is the sum of a strategy's messages over fitted links, T = max(f, a + S / B) each. "
    "`By measured points` interpolates between the points of each link's sweep. If only that one "
    "fits, the link is no line at that size. Measured is the aggregation alone.")
MOVED_NOTE = (
    "Bytes of a whole step, of all devices together. The model is compared with what NVLink sent "
    "or, for bytes through the host, with what PCIe received. The counters of PCIe include packet "
    "headers and all other traffic of a step.")
OVERLAP_NOTE = (
    "The layer-wise model sends a layer's gradients when they are ready and the link is free. Each "
    "layer has its share of the measured backward pass by its multiply-adds.")
WHAT_IF_NOTE = (
    "Predicted efficiency of weak scaling by a ring, in buckets behind the backward pass: the step "
    "without aggregation over the step. Links other than this machine's are assumed, with the "
    "bandwidth in their column. No prediction includes the time of the host to issue messages, or "
    "how much slower devices compute beside them. Compare this machine's row with its measurement.")
LINKS_NOTE = "Least squares in relative error, with 95 % confidence intervals from the residuals."


def write(folder: Path, recorded: Sequence[Path]) -> Path:
    """Derive every table, plot and page of the study in `folder` from it and from campaigns.

    Returns the page. Raises BadRecords.
    """
    meta = study_reader.read_page(folder)
    windows = links.read(folder / "links.csv")
    fits = links.fit_all(windows)
    campaigns = [reader.read(each) for each in recorded]
    found = {**of_links(fits), **of_campaigns(fits, campaigns)}
    for name, table in found.items():
        (folder / f"{name}.csv").write_text(as_csv(table), encoding="utf-8")
    text = f"{headline(found['predictions'])}{few(windows)}"
    found = {name: predictions.with_settings(table, campaigns) for name, table in found.items()}
    measured = [("measured in", campaign.meta["name"]) for campaign in campaigns]
    return page.write(Page("What aggregating gradients takes", [
        Text(text), *_figures(links.points(windows), fits, found),
        *tabled("Predicted and measured" if campaigns else "Predicted",
                predicted_table(found["predictions"]), PREDICTED_NOTE),
        *tabled("Bytes of the model and of the counters", moved_table(found["predictions"]),
                MOVED_NOTE),
        *tabled("Behind the backward pass", overlap_table(found["overlap"]), OVERLAP_NOTE),
        *tabled("What if", what_if_table(found["what_if"]), WHAT_IF_NOTE),
        Section("Links", [Text(LINKS_NOTE, note=True), Table(fitted(fits)),
                          Table(links.refused(windows))]),
        Section("Where the numbers come from", [
            *provenance.concerns(meta), Facts([*provenance.facts(meta), *measured])]),
    ]), folder, "report")[-1]


def of_links(fits: Sequence[links.Fit]) -> dict[str, pd.DataFrame]:
    """Return the tables that follow from a study's links alone, by their file's name."""
    return {"fits": links.table(fits)}


def of_campaigns(fits: Sequence[links.Fit], campaigns: Sequence[Campaign]
                 ) -> dict[str, pd.DataFrame]:
    """Return the tables that need the recorded campaigns too."""
    return {
        "predictions": _joined([predictions.of_campaign(each, fits) for each in campaigns])
        if campaigns else predictions.of_networks(fits),
        "overlap": _joined([predictions.overlaps(each, fits) for each in campaigns]),
        "what_if": _once(_joined([what_if.predict(each, fits) for each in campaigns])),
    }


def as_csv(table: pd.DataFrame) -> str:
    """Return the text of a table's file."""
    return table.to_csv(index=False, lineterminator="\n")


def headline(predicted: pd.DataFrame) -> str:
    """Say how well the model did, or that nothing was measured to test it."""
    if "error" not in predicted:
        return "Predicted from fitted links alone: no campaign was given to compare with."
    errors = predicted["error"].dropna().abs()
    if errors.empty:
        return ("No trial on several devices measured its aggregation alone (`phases: true`), "
                "so the model is untested.")
    swept = predicted["swept_error"].dropna().abs()
    held = predicted["measured_seconds"].between(predicted["predicted_seconds_low"],
                                                 predicted["predicted_seconds_high"])
    return (f"{(errors <= TARGET).sum()} of {len(errors)} aggregations predicted within "
            f"{100 * TARGET:.0f} %; median error {_percent(errors.median())}; "
            f"{held[errors.index].sum()} of them lie in the prediction's 95 % interval. "
            "By the links' measured points instead of the lines through them "
            f"{(swept <= TARGET).sum()} of {len(swept)}, {_percent(swept.median())}.")


def few(windows: pd.DataFrame) -> str:
    """Warn if too few processes swept the links for intervals to cover their differences."""
    processes = windows["process"].nunique()
    if processes >= MINIMUM_PROCESSES:
        return ""
    swept = "one process" if processes == 1 else f"{processes} processes"
    return f" Links were swept in {swept}: intervals hold little of how processes differ."


def fitted(fits: Sequence[links.Fit]) -> pd.DataFrame:
    """List latency and bandwidth of every link with their intervals and the fit's residuals."""
    return pd.DataFrame([{
        "link": row["link"], "wire": row["wire"], "devices": row["devices"],
        "latency (us)": cell(row, "latency_seconds", 1e-6),
        "floor (us)": number(1e6 * row["floor_seconds"]) if row["floor_seconds"] else "",
        "GB/s": cell(row, "bytes_per_second", 1e9),
        "most measured (GB/s)": number(max(
            (size / seconds for size, seconds in row["points"]), default=math.nan) / 1e9),
        "residual, root mean square": _percent(row["residual"]),
        "worst residual": f"{_percent(row['worst'], sign=True)} at "
                          f"{with_unit(row['worst_bytes'], BYTE_UNITS)}",
    } for row in map(asdict, fits)])


def predicted_table(predicted: pd.DataFrame) -> pd.DataFrame:
    """Show predicted beside measured times, a row per trial.

    Without a campaign, show the predicted time and its parts.
    """
    rows, settings = [], predictions.telling(predicted, TRIAL)
    for row in predicted.to_dict("records"):
        compared = {"measured": _interval(row, "measured_seconds"),
                    "error": _percent(row["error"], sign=True),
                    "by measured points": with_unit(row["swept_seconds"], TIME_UNITS),
                    "their error": _percent(row["swept_error"], sign=True),
                    } if "error" in row else _parts(row)
        rows.append({**_trial(row, settings), "predicted": _interval(row, "predicted_seconds"),
                     **compared, "remark": row["reason"]})
    return _without_empty(pd.DataFrame(rows))


def moved_table(predicted: pd.DataFrame) -> pd.DataFrame:
    """Show the parts of each prediction, and the counted bytes beside those of the model.

    The model is compared with what NVLink sent or, for bytes through the host, with what PCIe
    received, headers included.
    """
    if "error" not in predicted:
        return pd.DataFrame()
    rows, settings = [], predictions.telling(predicted, TRIAL)
    for row in predicted.to_dict("records"):
        wire, host = row["wire_bytes"], row["host_bytes"]
        by_pcie = host > 0 or row["wire"] == "p2p_off"
        counted, expected = row[RECEIVED if by_pcie else SENT], host if host > 0 else wire
        rows.append({
            **_trial(row, settings), **_parts(row),
            "model: between devices": with_unit(wire, BYTE_UNITS),
            "model: to the host": with_unit(host, BYTE_UNITS),
            **{f"counted: {words}": with_unit(row[column], BYTE_UNITS)
               for column, words in COUNTERS.items()},
            "counted / model": number(counted / expected) if expected and counted else ""})
    return _without_empty(pd.DataFrame(rows))


def overlap_table(found: pd.DataFrame) -> pd.DataFrame:
    """Show the step and its exposed aggregation by the layer-wise model and as measured."""
    settings = predictions.telling(found, TRIAL)
    return pd.DataFrame([{
        **_trial(row, settings),
        "sent": f"by {row['grouping']}" if row["grouping"] != "whole" else "as a whole",
        "aggregation": with_unit(row["aggregation_seconds"], TIME_UNITS),
        "exposed, model": with_unit(row["exposed_seconds"], TIME_UNITS),
        "exposed, measured": _interval(row, "measured_exposed_seconds"),
        "step, model": with_unit(row["step_seconds"], TIME_UNITS),
        "step, measured": _interval(row, "measured_step_seconds"),
        "error": _percent(row["error"], sign=True),
    } for row in found.to_dict("records")])


def what_if_table(found: pd.DataFrame) -> pd.DataFrame:
    """Show the efficiency on each number of devices side by side, a row per workload and link."""
    if found.empty:
        return pd.DataFrame()
    settings = predictions.telling(found, [*predictions.WORKLOAD, "link"], predictions.FURTHER)
    key = [*predictions.WORKLOAD, *settings, "link"]
    counts = sorted(found["devices"].unique())
    groups = found.sort_values("devices", kind="stable").groupby(key, sort=False, dropna=False)
    rows: list[dict[str, Any]] = []
    for names, group in groups:
        own = {row["devices"]: row for row in group.to_dict("records")}
        measured = "; ".join(f"{_percent(row['measured_efficiency'])} on {devices}"
                             for devices, row in own.items()
                             if pd.notna(row["measured_efficiency"]))
        remarks = dict.fromkeys(text for row in own.values() for text in row["remark"].split("; "))
        rows.append({
            **dict(zip(key, names, strict=True)),
            "GB/s": number(group["bytes_per_second"].iloc[0] / 1e9),
            **{f"{devices} devices": _percent(own[devices]["efficiency"]) if devices in own else ""
               for devices in counts},
            "measured": measured, "remark": "; ".join(filter(None, remarks))})
    return _without_empty(pd.DataFrame(rows))


def _figures(swept: pd.DataFrame, fits: Sequence[links.Fit],
             found: dict[str, pd.DataFrame]) -> list[Figure]:
    figures = [Figure("links", partial(plots.bandwidths, swept, fits))] if fits else []
    predicted = found["predictions"].get("predicted_seconds", pd.Series(dtype=float))
    if predicted.notna().any():
        draw_all = partial(plots.predictions, found["predictions"])
        figures.append(Figure("predictions", draw_all))
    for name, draw in (("overlap", plots.overlap), ("what_if", plots.what_if)):
        if len(found[name]):
            figures.append(Figure(name, partial(draw, found[name])))
    return figures


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _once(found: pd.DataFrame) -> pd.DataFrame:
    """Keep one row for each workload, link and number of devices: the first that was measured.

    A campaign whose devices had cores of their own comes before one whose devices shared them.
    """
    if found.empty:
        return found
    best_first = found.assign(unmeasured=found["measured_efficiency"].isna(),
                              shared=found["remark"] != "")
    best_first = best_first.sort_values(["unmeasured", "shared"], kind="stable")
    key = [*predictions.WORKLOAD, *predictions.FURTHER, "link", "devices"]
    return best_first.drop(columns=["unmeasured", "shared"]).drop_duplicates(key).sort_index()


def _trial(row: dict[Any, Any], settings: Sequence[str]) -> dict[str, Any]:
    return {"framework": row.get("framework", ""), "network": row["network"],
            **{setting.replace("_", " "): row[setting] for setting in settings},
            "devices": row["devices"], "strategy": row["strategy"], "wire": row["wire"]}


def _parts(row: dict[Any, Any]) -> dict[str, str]:
    """Return the share of each leg of a prediction, the largest first."""
    legs = (leg.split(" ") for leg in row["legs"].split("; ") if leg)
    seconds = {link: float(text) for link, text in legs}
    total = sum(seconds.values())
    shares = ", ".join(f"{link} {_percent(value / total)}" for link, value
                       in sorted(seconds.items(), key=lambda leg: -leg[1])) if total > 0 else ""
    return {"made of": shares, "residual of its links": _percent(row["residual"])}


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    return table[[column for column in table if (table[column] != "").any()]]


def _interval(row: dict[Any, Any], name: str) -> str:
    """Return a time with its interval, both in the unit of the time."""
    value, low, high = (row[f"{name}{end}"] for end in numbers.ENDS)
    _, scale = best_unit([value], TIME_UNITS)
    interval = numbers.span(low / scale, high / scale)
    return with_unit(value, TIME_UNITS) + (f" ({interval})" if interval else "")


def _percent(share: float, sign: bool = False) -> str:
    digits = 1 if abs(100 * share) < 10 else 0
    return numbers.percent(share, f"{'+' if sign else ''}.{digits}f")
