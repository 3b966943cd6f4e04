"""What the report says of training to a test accuracy: a table, a sentence a group, the curves."""

from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.display import palette, ranking, style
from analysis.display.numbers import TIME_UNITS, best_unit, number, with_span
from analysis.display.style import INK, styled
from analysis.records.reader import Campaign, target_of
from analysis.trials import accuracy
from analysis.trials.accuracy import ENDS

# Of a curve's axis: its label and its place in `accuracy.curves`.
AXES = {"steps": ("steps trained", 0), "time": ("training time (s)", 1)}


def table(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """List every row that trained, with its median over seeds and the least and the most."""
    kept = trials["trial"].isin(campaign.accuracy["trial"])
    if not kept.any():
        return pd.DataFrame()
    unit, scale = best_unit(trials.loc[kept, "seconds_to_target"], TIME_UNITS)

    def cells(row: "pd.Series[Any]") -> dict[str, Any]:
        seen = campaign.rows("accuracy", str(row["trial"]))
        count = len(accuracy.reached(campaign, str(row["trial"])))
        return {"seeds at the target": f"{count} of {row['processes_planned']}",
                "epochs": with_span(*(row[f"epochs_to_target{end}"] for end in ENDS)),
                f"training time ({unit})": with_span(
                    *(row[f"seconds_to_target{end}"] / scale for end in ENDS)),
                "best test accuracy (%)": number(100 * seen["test_accuracy"].max())}

    return ranking.table(trials, cells, kept)


def sentences(campaign: Campaign) -> list[str]:
    """Say of comparable rows whether they need the same number of epochs, and as the reference."""
    groups, every = list(accuracy.groups(campaign)), list(accuracy.alike(campaign))

    def which(trials: list[dict[str, Any]], of: list[list[dict[str, Any]]]) -> str:
        return (f"{trials[0]['network']}, batch {trials[0]['global_batch']}: "
                if len(of) > 1 else "")

    compared = [which(trials, groups) + accuracy.sentence(
        accuracy.epochs(campaign, [each["trial"] for each in trials])) for trials in groups]
    against = [(which(trials, every), accuracy.reference_sentence(campaign, trials))
               for trials in every]
    return [*compared, *(name + said for name, said in against if said)]


@styled
def figure(campaign: Campaign, trials: pd.DataFrame, over: str) -> Figure:
    """Draw the test accuracy of every seed over `steps` or `time`, a colour a row."""
    label, place = AXES[over]
    shown = trials[trials["trial"].isin(campaign.accuracy["trial"])]
    names = ranking.series(shown)
    styles = palette.series_styles(names, shown)
    groups = list(shown.assign(series=names).groupby(["network", "global_batch"], sort=False))
    drawn, grid = style.panels(len(groups))
    for axes, ((network, batch), rows) in zip(grid, groups, strict=True):
        for position, (_, row) in enumerate(rows.iterrows()):
            for curve in accuracy.curves(campaign, row["trial"]):
                # A wide line shows on both sides of a narrow one that lies on it.
                axes.plot(curve[place], 100 * curve[2], zorder=2 + position,
                          linewidth=max(1.0, 4.5 - 1.5 * position),
                          color=styles[row["series"]].colour)
        axes.axhline(100 * target_of(campaign)["target"], color=INK, linewidth=0.8,
                     linestyle=":")
        axes.set_title(f"{network}, batch {batch}")
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        axes.set_ylabel("test accuracy (%)")
        axes.grid()
    style.finish(drawn, f"Test accuracy over {label.partition(' (')[0]}: a curve a seed; dotted, "
                        "the target",
                 style.legend({name: replace(own, marker="", number=0)
                               for name, own in styles.items()}))
    return drawn
