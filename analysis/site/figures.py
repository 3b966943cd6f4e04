"""Interactive figures of the site, as plain dictionaries that Plotly draws: `data`, `layout`, and a link behind each point.

Colours of ink and grid are the page's own (pages/site.js), so that a figure follows light and dark. Nothing is written here.
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

SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
           "*": "star", "h": "hexagon"}
ROW_PIXELS = 24
FRAME_PIXELS = 150  # title, axis and legend
VARIANTS = ("", "-open", "-dot", "-open-dot")  # of a symbol, by the number of a look


def step_time(rows: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Every verified row's time per mini-batch with its interval, a line a setting, a colour a framework."""
    ranked = rows[rows["verified"] == "yes"]
    unit, scale = best_unit(ranked["step_seconds"], TIME_UNITS)
    columns = ["step_seconds", "step_seconds_low", "step_seconds_high"]
    figure = _dots(ranked, ranked[columns] / scale, links, rows)
    return _titled(figure, "Time per mini-batch with its 95 % interval; lower is faster", f"time ({unit})", log=True)


def relative_speed(rows: pd.DataFrame, speeds: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Every verified row's speed relative to the fastest one of its setting."""
    several = speeds[speeds.groupby(ranking.GROUP, dropna=False)["trial"].transform("count") > 1]
    found = rows.merge(several[["trial", "relative_speed", "relative_speed_low", "relative_speed_high"]], on="trial")
    columns = ["relative_speed", "relative_speed_low", "relative_speed_high"]
    return _titled(_dots(found, found[columns], links, rows), "Speed relative to the fastest of each setting", "1 is the fastest")


def losses(campaign: Campaign, rows: pd.DataFrame, links: Mapping[str, str]) -> Figure:
    """Loss by step while timed, a curve a trial, one setting at a time: frameworks that train one network lie on each other."""
    measured = rows[rows["status"] == "ok"]
    settings = measured.apply(lambda row: ranking.setting(row, rows, dropped=["tuning", "threads"]), axis=1)
    series = _series(rows)[measured.index]
    styles = palette.series_styles(series, measured)
    traces = []
    for (_, row), setting, name in zip(measured.iterrows(), settings, series, strict=True):
        curve = sameness.loss_curve(campaign, row["trial"])
        traces.append({"x": [int(step) for step in curve.index], "y": [round(loss, 5) for loss in curve], "name": name,
                       "mode": "lines+markers", "marker": _marker(styles[name]),
                       "line": {"width": 1.2}, "customdata": [links[row["trial"]]] * len(curve),
                       "visible": setting == settings.iloc[0]})
    menu = [{"label": setting, "method": "update", "args": [{"visible": [found == setting for found in settings]}]}
            for setting in dict.fromkeys(settings)]
    layout = {"updatemenus": [{"buttons": menu, "x": 0, "xanchor": "left", "y": 1.2, "yanchor": "top"}], "height": 440,
              "hovermode": "closest", "xaxis": {"title": {"text": "steps trained"}, "type": "log", "dtick": "D2"},
              "yaxis": {"title": {"text": "loss"}}}
    return {"title": "Loss while timed; one network's curves should lie on each other", "data": traces, "layout": layout}


def windows_of(windows: pd.DataFrame, column: str, title: str) -> Figure:
    """One column of a trial's windows by the step they end at, a colour a process; warm-up has open markers."""
    traces = []
    for process, own in windows.groupby("process"):
        marker = {"symbol": ["circle" if window >= 0 else "circle-open" for window in own["window"]], "size": 7}
        traces.append({"x": own["last_step"].tolist(), "y": own[column].tolist(), "name": f"process {process}",
                       "mode": "lines+markers", "line": {"width": 1}, "marker": marker})
    layout = {"height": 340, "xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": title}, "type": "log"}}
    return {"title": f"Each window's {title}; open markers are warm-up", "data": traces, "layout": layout}


def releases(groups: Sequence[tuple[str, pd.DataFrame]], links: Mapping[tuple[str, str], str]) -> Figure:
    """Time by release relative to the first one, a curve a workload with its intervals; `links` by campaign and trial."""
    traces = []
    distinct = list(dict.fromkeys(palette.STRATEGIES.values()))
    for number, (label, rows) in enumerate(groups):
        first = rows["step_seconds"].iloc[0]
        marker = _marker(SeriesStyle(*distinct[number % len(distinct)], number // len(distinct)))
        traces.append({"x": (rows["framework"] + " " + rows["release"]).tolist(), "name": label, "mode": "lines+markers",
                       "y": (rows["step_seconds"] / first).tolist(), "marker": marker, "error_y": _interval(
                           rows[["step_seconds", "step_seconds_low", "step_seconds_high"]] / first),
                       "customdata": [links[key] for key in zip(rows["campaign"], rows["trial"], strict=True)]})
    layout = {"height": 460, "yaxis": {"title": {"text": "time per mini-batch / first release"}}, "xaxis": {"type": "category"}}
    return {"title": "Time by release, relative to the first; lower is faster", "data": traces, "layout": layout}


def _dots(rows: pd.DataFrame, values: pd.DataFrame, links: Mapping[str, str], every: pd.DataFrame) -> Figure:
    """A line for each setting, a dot for each framework with its interval; `values` has the estimate, its low and its high.

    Settings come in the order of `every` row of the campaign: where a framework's row is missing, another's stands in its place.
    """
    settings = rows.apply(lambda row: ranking.setting(row, every, dropped=["tuning"]), axis=1)
    order = every.apply(lambda row: ranking.setting(row, every, dropped=["tuning"]), axis=1).drop_duplicates()
    series = _series(rows)
    traces = []
    for name, look in palette.series_styles(series, rows).items():
        own = rows[series == name]
        traces.append({
            "x": values.loc[own.index].iloc[:, 0].tolist(), "y": settings[own.index].tolist(), "mode": "markers", "type": "scatter",
            "name": name, "marker": _marker(look),
            "error_x": _interval(values.loc[own.index]), "customdata": [links[trial] for trial in own["trial"]],
            "text": own["trial"].tolist(), "hovertemplate": "%{y}<br>%{x:.3g}<extra>%{fullData.name}</extra>"})
    height = FRAME_PIXELS + ROW_PIXELS * settings.nunique()
    lines = {"autorange": "reversed", "type": "category", "dtick": 1, "categoryorder": "array",
             "categoryarray": order[order.isin(settings)].tolist()}
    return {"data": traces, "layout": {"height": height, "yaxis": lines}}


def _titled(figure: Figure, title: str, axis: str, log: bool = False) -> Figure:
    horizontal = {"title": {"text": axis}, **({"type": "log", "dtick": "D2"} if log else {"rangemode": "tozero"})}
    return {**figure, "title": title, "layout": {**figure["layout"], "xaxis": horizontal}}


def _interval(values: pd.DataFrame) -> dict[str, Any]:
    """Plotly's form of an interval around an estimate; none where it was not measured."""
    estimate, low, high = (values.iloc[:, column] for column in range(3))
    return {"type": "data", "symmetric": False, "thickness": 1.2, "width": 3, "array": (high - estimate).fillna(0).tolist(),
            "arrayminus": (estimate - low).fillna(0).tolist()}


def _series(rows: pd.DataFrame) -> "pd.Series[str]":
    """Name each row's framework, with whatever else tells those of the table apart."""
    names = ranking.contestants(rows)
    return names + " " + rows["tuning"] if rows["tuning"].nunique() > 1 else names


def _marker(look: SeriesStyle) -> dict[str, Any]:
    return {"color": look.colour, "symbol": SYMBOLS[look.marker] + VARIANTS[look.number % len(VARIANTS)], "size": 9}
