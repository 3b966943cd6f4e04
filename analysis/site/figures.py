"""Interactive figures of the site as plain dictionaries for Plotly: `data`, `layout`, point links.

Ink and grid take the page's colours (pages/site.js), so a figure follows light and dark. Nothing is
written here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.display import palette, ranking
from analysis.display.numbers import TIME_UNITS, best_unit
from analysis.display.palette import SeriesStyle
from analysis.proof import sameness
from analysis.records.reader import Campaign

Figure = dict[str, Any]

SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
           "P": "cross", "X": "x", "*": "star", "h": "hexagon", "p": "pentagon"}
ROW_PIXELS = 24
FRAME_PIXELS = 150  # title, axis and legend
VARIANTS = ("", "-open", "-dot", "-open-dot")  # of a symbol, by the number of a style
# Plotly's own labels between powers of ten are single digits: 5, 10, 2, 5.
TICKS = [digit * 10.0**power for power in range(-4, 9) for digit in (1, 2, 5)]
LOG = {"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:,.9g}" for tick in TICKS]}
STEP = ["step_seconds", "step_seconds_low", "step_seconds_high"]


def step_time(rows: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Show every verified time per mini-batch with its interval: a line per setting."""
    ranked = rows[rows["verified"] == "yes"]
    unit, scale = best_unit(ranked["step_seconds"], TIME_UNITS)
    return {**_dots(ranked, ranked[STEP] / scale, links, rows,
                    {"title": {"text": f"time ({unit}, log scale)"}, **LOG}),
            "title": f"Time per {ranking.unit_of_work(rows)} with its 95 % confidence interval; "
                     "lower is faster"}


def relative_speed(rows: pd.DataFrame, speeds: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Show every verified row's speed relative to the fastest one of its setting."""
    several = speeds.groupby(ranking.GROUP, dropna=False)["trial"].transform("count") > 1
    found = rows.merge(speeds.loc[several, ["trial", *ranking.SPEEDS]], on="trial")
    axis = {"title": {"text": "1 is the fastest"}, "rangemode": "tozero"}
    return {**_dots(found, found[ranking.SPEEDS], links, rows, axis),
            "title": "Speed relative to the fastest of each setting"}


def losses(campaign: Campaign, rows: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Show loss by step while timed: a curve per trial, one setting at a time."""
    measured = rows[rows["status"] == "ok"]
    settings = _settings(measured, rows, ["tuning", "threads"])
    series = ranking.series(rows)[measured.index]
    styles = palette.series_styles(series, measured)
    traces = []
    for (_, row), setting, name in zip(measured.iterrows(), settings, series, strict=True):
        curve = sameness.loss_curve(campaign, row["trial"])
        traces.append({
            "x": [int(step) for step in curve.index], "y": [round(loss, 5) for loss in curve],
            "name": name, "mode": "lines+markers", "marker": _marker(styles[name]),
            "line": {"width": 1.2}, "customdata": [links[row["trial"]]] * len(curve),
            "visible": setting == settings.iloc[0]})
    menu = [{"label": setting, "method": "update",
             "args": [{"visible": [found == setting for found in settings]}]}
            for setting in dict.fromkeys(settings)]
    layout = {"updatemenus": [{"buttons": menu, "x": 0, "xanchor": "left", "y": 1.2,
                               "yanchor": "top"}],
              "height": 440, "hovermode": "closest", "yaxis": {"title": {"text": "loss"}},
              "xaxis": {"title": {"text": "steps trained (log scale)"}, **LOG}}
    title = "Loss while timed; the curves of one network should coincide"
    dropout = dict.fromkeys(trial["network"] for trial in campaign.trials if trial.get("dropout"))
    if dropout:
        title += f", except with dropout ({', '.join(dropout)}), whose masks are random"
    return {"title": title, "data": traces, "layout": layout}


def windows_of(windows: pd.DataFrame, column: str, title: str) -> Figure:
    """Show a column of a trial's windows by their last step, a colour per process."""
    traces = []
    for process, own in windows.groupby("process"):
        symbols = ["circle" if window >= 0 else "circle-open" for window in own["window"]]
        values = [float(f"{value:.5g}") for value in own[column]]
        traces.append({"x": own["last_step"].tolist(), "y": values,
                       "name": f"process {process}", "mode": "lines+markers",
                       "line": {"width": 1}, "marker": {"symbol": symbols, "size": 7}})
    layout = {"height": 340, "xaxis": {"title": {"text": "step"}},
              "yaxis": {"title": {"text": f"{title} (log scale)"}, "type": "log"}}
    return {"title": f"Each window's {title}; open markers are warm-up", "data": traces,
            "layout": layout}


def releases(groups: Sequence[tuple[str, pd.DataFrame]],
             links: Mapping[tuple[str, str], str]) -> Figure:
    """Show time by release over that of the first, a curve per workload.

    `links` leads from (campaign, trial) to a page.
    """
    traces = []
    distinct = palette.DISTINCT
    for number, (label, rows) in enumerate(groups):
        first = rows["step_seconds"].iloc[0]
        style = SeriesStyle(*distinct[number % len(distinct)], number // len(distinct))
        keys = zip(rows["campaign"], rows["trial"], strict=True)
        traces.append({
            "x": (rows["framework"] + " " + rows["release"]).tolist(), "name": label,
            "mode": "lines+markers", "y": (rows["step_seconds"] / first).tolist(),
            "marker": _marker(style), "error_y": _interval(rows[STEP] / first),
            "customdata": [links[key] for key in keys]})
    layout = {"height": 460, "xaxis": {"type": "category"},
              "yaxis": {"title": {"text": "time per mini-batch / first release"}}}
    return {"title": "Time by release, relative to the first; lower is faster", "data": traces,
            "layout": layout}


def _dots(rows: pd.DataFrame, values: pd.DataFrame, links: Mapping[str, str],
          every: pd.DataFrame, axis: dict[str, Any]) -> Figure:
    """Show a line for each setting and a dot for each framework.

    `values` has estimate, low and high, `axis` describes them. Settings come in the order of
    `every` row of the campaign, also where a framework has none.
    """
    settings = _settings(rows, every, ["tuning"])
    order = _settings(every, every, ["tuning"]).drop_duplicates()
    series = ranking.series(rows)
    traces = []
    for name, style in palette.series_styles(series, rows).items():
        own = rows[series == name]
        traces.append({
            "x": values.loc[own.index].iloc[:, 0].tolist(), "y": settings[own.index].tolist(),
            "mode": "markers", "type": "scatter", "name": name, "marker": _marker(style),
            "error_x": _interval(values.loc[own.index]), "text": own["trial"].tolist(),
            "customdata": [links[trial] for trial in own["trial"]],
            "hovertemplate": "%{y}<br>%{x:.3g}<extra>%{fullData.name}</extra>"})
    lines = {"autorange": "reversed", "type": "category", "dtick": 1, "categoryorder": "array",
             "categoryarray": order[order.isin(settings)].tolist()}
    height = FRAME_PIXELS + ROW_PIXELS * settings.nunique()
    return {"data": traces, "layout": {"height": height, "yaxis": lines, "xaxis": axis}}


def _interval(values: pd.DataFrame) -> dict[str, Any]:
    """Return an interval in Plotly's form; none where it was not measured."""
    estimate, low, high = (values.iloc[:, column] for column in range(3))
    return {"type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
            "array": (high - estimate).fillna(0).tolist(),
            "arrayminus": (estimate - low).fillna(0).tolist()}


def _settings(rows: pd.DataFrame, every: pd.DataFrame, dropped: list[str]) -> "pd.Series[str]":
    return rows.apply(lambda row: ranking.setting(row, every, dropped=dropped), axis=1)


def _marker(style: SeriesStyle) -> dict[str, Any]:
    symbol = SYMBOLS[style.marker] + VARIANTS[style.number % len(VARIANTS)]
    return {"color": style.colour, "symbol": symbol, "size": 9}
