"""Writes the page of `dlbench study aggregation`: fitted links, predicted against measured aggregation, overlap, what-if.

The tables of numbers lie beside it as fits.csv, predictions.csv, overlap.csv, what_if.csv and article.csv.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from analysis.aggregation import links, plots, predictions
from analysis.aggregation.predictions import ARTICLE_SECONDS, TRIAL
from analysis.display import page as pages
from analysis.display import provenance
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, best_unit, number, span
from analysis.records import reader
from analysis.records.reader import Campaign
from analysis.report.scaling import COUNTERS
from analysis.statistics.bootstrap import MINIMUM_PROCESSES

SENT, RECEIVED = "nvlink_bytes_per_step", "pcie_rx_bytes_per_step"
TARGET = 0.2  # of the model: predicted within 20 % of what was measured


def write(folder: Path, recorded: Sequence[Path]) -> Path:
    """Derive every table and plot of the study in `folder` and of the campaigns `recorded`; return the page. Raises BadRecords."""
    page = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    windows = links.read(folder / "links.csv")
    swept = links.points(windows)
    fits = links.fit_all(windows)
    campaigns = [reader.read(each) for each in recorded]
    found = {**of_links(fits), **of_campaigns(fits, campaigns)}
    for name, table in found.items():
        (folder / f"{name}.csv").write_text(as_csv(table), encoding="utf-8")
    predicted = found["predictions"]
    found |= {name: predictions.with_settings(table, campaigns) for name, table in found.items()}
    shown = {"links": fitted(fits), "refused": links.refused(windows), "predictions": predicted_table(found["predictions"]),
             "moved": moved_table(found["predictions"]), "overlap": overlap_table(found["overlap"]),
             "what_if": what_if_table(found["what_if"]), "article": article_table(found["article"])}
    figures = _figures(swept, fits, found)
    (folder / "plots").mkdir(exist_ok=True)
    for name, figure in figures.items():
        (folder / "plots" / f"{name}.svg").write_text(pages.draw_svg(figure), encoding="utf-8")
        figure.savefig(folder / "plots" / f"{name}.png", dpi=160)
    study = Campaign(folder, page, pd.DataFrame(), pd.DataFrame())
    drawn = {name: pages.draw_svg(figure) for name, figure in figures.items()}
    for kind in ("md", "html"):
        environment = Environment(loader=FileSystemLoader(pages.TEMPLATES), undefined=StrictUndefined, autoescape=kind == "html",
                                  trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(markdown=pages.markdown, provenance=lambda study: provenance.facts(study.meta), inline=pages.inline)
        text = environment.get_template(f"aggregation.{kind}.j2").render(
            study=study, headline=f"{headline(predicted)}{few(windows)}", tables=shown, drawn=drawn, campaigns=campaigns,
            article=article_answer(found["article"]))
        (folder / f"report.{kind}").write_text(text, encoding="utf-8")
    return folder / "report.html"


def of_links(fits: Sequence[links.Fit]) -> dict[str, pd.DataFrame]:
    """The tables that follow from a study's links alone, by their file's name."""
    return {"fits": links.table(fits), "article": predictions.article(fits)}


def of_campaigns(fits: Sequence[links.Fit], campaigns: Sequence[Campaign]) -> dict[str, pd.DataFrame]:
    """The tables that need the recorded campaigns too."""
    return {
        "predictions": _joined([predictions.of_campaign(each, fits) for each in campaigns]) if campaigns
        else predictions.of_networks(fits),
        "overlap": _joined([predictions.overlaps(each, fits) for each in campaigns]),
        "what_if": _once(_joined([predictions.what_if(each, fits) for each in campaigns])),
    }


def as_csv(table: pd.DataFrame) -> str:
    """A table as its file holds it."""
    return table.to_csv(index=False, lineterminator="\n")


def headline(predicted: pd.DataFrame) -> str:
    """Say how well the model did, or that nothing was measured beside it."""
    if "error" not in predicted:
        return "Predicted from fitted links alone: no campaign was given to hold against them."
    errors = predicted["error"].dropna().abs()
    if errors.empty:
        return "No trial on several devices measured its aggregation alone (`phases: true`), so the model stands unproved."
    swept = predicted["swept_error"].dropna().abs()
    held = predicted["measured_seconds"].between(predicted["predicted_seconds_low"], predicted["predicted_seconds_high"])
    return (f"{(errors <= TARGET).sum()} of {len(errors)} aggregations predicted within {100 * TARGET:.0f} %; "
            f"median error {_percent(errors.median())}; {held[errors.index].sum()} of them lie in the prediction's 95 % interval. "
            f"By the links' measured points instead of the lines through them {(swept <= TARGET).sum()} of {len(swept)}, "
            f"{_percent(swept.median())}.")


def few(windows: pd.DataFrame) -> str:
    """Say where too few processes swept the links for intervals to hold how they differ; empty where enough did."""
    processes = windows["process"].nunique()
    if processes >= MINIMUM_PROCESSES:
        return ""
    swept = "one process" if processes == 1 else f"{processes} processes"
    return f" Links were swept in {swept}: intervals hold little of how processes differ."


def fitted(fits: Sequence[links.Fit]) -> pd.DataFrame:
    """List latency and bandwidth of every link with their intervals and what the line leaves over."""
    return pd.DataFrame([{
        "link": each.link, "wire": each.wire, "devices": each.devices,
        "latency (us)": _with_span(each.latency_seconds, each.latency_seconds_low, each.latency_seconds_high, 1e-6),
        "floor (us)": number(1e6 * each.floor_seconds) if each.floor_seconds else "",
        "GB/s": _with_span(each.bytes_per_second, each.bytes_per_second_low, each.bytes_per_second_high, 1e9),
        "most measured (GB/s)": number(max((size / seconds / 1e9 for size, seconds in each.points), default=float("nan"))),
        "residual, root mean square": _percent(each.residual),
        "worst residual": f"{_percent(each.worst, sign=True)} at {_size(each.worst_bytes)}",
    } for each in fits])


def predicted_table(predicted: pd.DataFrame) -> pd.DataFrame:
    """Set predicted beside measured, a row a trial; without a campaign, predicted alone and what it is made of."""
    rows, settings = [], predictions.telling(predicted, TRIAL)
    for row in predicted.to_dict("records"):
        cells = {**_trial(row, settings), "predicted": _interval(row, "predicted_seconds")}
        if "error" in row:
            cells |= {"measured": _interval(row, "measured_seconds"), "error": _percent(row["error"], sign=True),
                      "by measured points": _time(row["swept_seconds"]), "their error": _percent(row["swept_error"], sign=True)}
        else:
            cells |= _make(row)
        rows.append({**cells, "remark": row["reason"]})
    return _without_empty(pd.DataFrame(rows))


def moved_table(predicted: pd.DataFrame) -> pd.DataFrame:
    """Say what each prediction of a trial is made of, and set the bytes that were counted beside the model's.

    Held against the model is what NVLink sent or, of bytes that go through the host, what PCIe received, headers included.
    """
    if "error" not in predicted:
        return pd.DataFrame()
    rows, settings = [], predictions.telling(predicted, TRIAL)
    for row in predicted.to_dict("records"):
        wire, host = row["wire_bytes"], row["host_bytes"]
        by_pcie = host > 0 or row["wire"] == "p2p_off"
        counted, meant = row[RECEIVED if by_pcie else SENT], host if host > 0 else wire
        rows.append({
            **_trial(row, settings), **_make(row), "model: between devices": _size(wire), "model: to the host": _size(host),
            **{f"counted: {words}": _size(row[column]) for column, words in COUNTERS.items()},
            "counted / model": number(counted / meant) if meant and counted else ""})
    return _without_empty(pd.DataFrame(rows))


def _trial(row: dict[Any, Any], settings: Sequence[str]) -> dict[str, Any]:
    return {"framework": row.get("framework", ""), "network": row["network"], **_named(row, settings), "devices": row["devices"],
            "strategy": row["strategy"], "wire": row["wire"]}


def _make(row: dict[Any, Any]) -> dict[str, str]:
    return {"made of": _made_of(row["legs"]), "residual of its links": _percent(row["residual"])}


def overlap_table(found: pd.DataFrame) -> pd.DataFrame:
    """Set the step and its exposed aggregation by the layer-wise model beside the measured ones."""
    settings = predictions.telling(found, TRIAL)
    return pd.DataFrame([{
        "framework": row["framework"], "network": row["network"], **_named(row, settings), "devices": row["devices"],
        "strategy": row["strategy"], "wire": row["wire"],
        "sent": f"by {row['grouping']}" if row["grouping"] != "whole" else "as a whole",
        "aggregation": _time(row["aggregation_seconds"]),
        "exposed, model": _time(row["exposed_seconds"]), "exposed, measured": _interval(row, "measured_exposed_seconds"),
        "step, model": _time(row["step_seconds"]), "step, measured": _interval(row, "measured_step_seconds"),
        "error": _percent(row["error"], sign=True),
    } for row in found.to_dict("records")])


def what_if_table(found: pd.DataFrame) -> pd.DataFrame:
    """Put the efficiency on each number of devices side by side, a row a workload and link."""
    if not len(found):
        return pd.DataFrame()
    settings = predictions.telling(found, [*predictions.WORKLOAD, "link"], predictions.FURTHER)
    key = [*predictions.WORKLOAD, *settings, "link"]
    rows: list[dict[str, Any]] = []
    for names, group in found.sort_values("devices", kind="stable").groupby(key, sort=False, dropna=False):
        own = {row["devices"]: row for row in group.to_dict("records")}
        efficiency = {f"{devices} devices": _percent(own[devices]["efficiency"]) if devices in own else ""
                      for devices in sorted(found["devices"].unique())}
        measured = "; ".join(f"{_percent(row['measured_efficiency'])} on {devices}" for devices, row in own.items()
                             if pd.notna(row["measured_efficiency"]))
        remarks = dict.fromkeys(words for row in own.values() for words in row["remark"].split("; "))
        rows.append({**dict(zip(key, names, strict=True)), "GB/s": number(group["bytes_per_second"].iloc[0] / 1e9), **efficiency,
                     "measured": measured, "remark": "; ".join(filter(None, remarks))})
    return _without_empty(pd.DataFrame(rows))


def article_answer(found: pd.DataFrame) -> str:
    """Say whether an assumption of `predictions.article` gives the article's time, which comes nearest, and what it would carry."""
    plain = found[found["link"] == predictions.ARTICLE_LINK].set_index("assumption")
    sizes, ratios = plain["bytes"].astype(float), plain["ratio"].astype(float).drop(predictions.WOULD_CARRY)
    off = (ratios - 1).abs()
    nearest = ratios[off <= off.min() * (1 + 1e-9)]
    names = " and ".join(f"({name})" for name in nearest.index)
    verdict = "None gives it: the nearest" if off.min() > 0.05 else "It is found"
    return (f"{verdict}, {names}, comes to {nearest.iloc[0]:.2f} times it; at that rate it would carry the gradients "
            f"{sizes[predictions.WOULD_CARRY] / sizes[predictions.ONCE]:.2f} times.")


def article_table(found: pd.DataFrame) -> pd.DataFrame:
    """List each way to come to a time for FCN-R's gradients, and how it compares with the article's."""
    return pd.DataFrame([{
        "assumption or strategy": row["assumption"], "link": row["link"], "devices": row["devices"], "bytes": _size(row["bytes"]),
        "time": _interval(row, "seconds"), f"of the article's {1e3 * ARTICLE_SECONDS:.1f} ms": number(row["ratio"]),
    } for row in found.to_dict("records")])


def _figures(swept: pd.DataFrame, fits: Sequence[links.Fit], found: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    figures = {}
    if fits:
        figures["links"] = plots.bandwidths(swept, fits)
    if found["predictions"].get("predicted_seconds", pd.Series(dtype=float)).notna().any():
        figures["predictions"] = plots.predictions(found["predictions"])
    if len(found["overlap"]):
        figures["overlap"] = plots.overlap(found["overlap"])
    if len(found["what_if"]):
        figures["what_if"] = plots.what_if(found["what_if"])
    return figures


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _once(found: pd.DataFrame) -> pd.DataFrame:
    """Keep of each workload, link and number of devices what the first campaign says that measured it, else the first one.

    A campaign whose devices had cores of their own comes before one whose devices shared them.
    """
    if not len(found):
        return found
    best_first = found.assign(unmeasured=found["measured_efficiency"].isna(), shared=found["remark"] != "")
    best_first = best_first.sort_values(["unmeasured", "shared"], kind="stable").drop(columns=["unmeasured", "shared"])
    return best_first.drop_duplicates([*predictions.WORKLOAD, *predictions.FURTHER, "link", "devices"]).sort_index()


def _named(row: dict[Any, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The cells of `settings` by their headings."""
    return {setting.replace("_", " "): row[setting] for setting in settings}


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    return table[[column for column in table if (table[column] != "").any()]]


def _interval(row: dict[Any, Any], name: str) -> str:
    """A time with its interval, both in the unit of the time."""
    value, low, high = (row.get(f"{name}{suffix}", float("nan")) for suffix in ("", "_low", "_high"))
    if pd.isna(value):
        return ""
    unit, scale = best_unit(pd.Series([value]), TIME_UNITS)
    return f"{number(value / scale)} {unit}" + ("" if pd.isna(low) else f" ({span(low / scale, high / scale)})")


def _with_span(value: float, low: float, high: float, scale: float) -> str:
    return f"{number(value / scale)} ({span(low / scale, high / scale)})"


def _made_of(legs: str) -> str:
    """The share of each leg, the largest first."""
    seconds = {link: float(text) for link, text in (leg.split(" ") for leg in legs.split("; ") if leg)}
    total = sum(seconds.values())
    if not total > 0:  # nan where a fit is missing
        return ""
    return ", ".join(f"{link} {_percent(value / total)}" for link, value in sorted(seconds.items(), key=lambda leg: -leg[1]))


def _time(seconds: float) -> str:
    return _interval({"time": seconds}, "time")


def _size(size_bytes: Any) -> str:
    if pd.isna(size_bytes):
        return ""
    unit, scale = best_unit(pd.Series([float(size_bytes)]), BYTE_UNITS)
    return f"{number(float(size_bytes) / scale)} {unit}"


def _percent(share: float, sign: bool = False) -> str:
    percent = 100 * share
    return "" if pd.isna(share) else f"{percent:{'+' if sign else ''}.{1 if abs(percent) < 10 else 0}f} %"
