"""Draws docs/first-look.png, the plot of the README, from the records of one published campaign.

FCN-5 on one H200: float32 as each framework comes, then with equal arithmetic. Run it from the
checkout: .venv/bin/python scripts/first_look.py
"""

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from analysis.display import palette, style  # noqa: E402
from analysis.display.numbers import number  # noqa: E402
from analysis.records import reader  # noqa: E402
from analysis.statistics import bootstrap  # noqa: E402
from analysis.trials import summary  # noqa: E402

CAMPAIGN = ROOT / "results" / "h200-fcn5-host-2026-11-21"
# JAX with its defaults, which the proof refuses to call fp32.
DEFAULT = "jax_default_precision"
# Heading, PyTorch's row, JAX's row: (framework, precision).
SETTINGS = (
    ("float32 with the defaults", ("pytorch", "fp32"), (DEFAULT, "fp32")),
    ("IEEE float32 in both", ("pytorch", "fp32"), ("jax", "fp32")),
    ("TF32 in both", ("pytorch", "tf32"), ("jax", "tf32")),
)


def main() -> None:
    campaign = reader.read(CAMPAIGN)
    rows = summary.summarise(campaign)
    on_device = rows[rows["data"] == "device"].set_index(["framework", "precision"])
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(8.6, 2.9), layout="constrained")
        panels = figure.subplots(1, len(SETTINGS), sharey=True)
        for axes, (heading, pytorch, jax) in zip(panels, SETTINGS, strict=True):
            faster = bootstrap.ratio(*(summary.times_of(campaign, on_device.loc[key, "trial"])
                                       for key in (pytorch, jax)))
            title = f"{heading}:\nJAX {number(faster.value)} times as fast"
            draw(axes, on_device.loc[[pytorch, jax]], title)
        panels[0].set_ylabel("time per mini-batch (ms)")
        figure.savefig(ROOT / "docs" / "first-look.png", dpi=130)


def draw(axes: Axes, pair: pd.DataFrame, title: str) -> None:
    """Two bars with their intervals; what is not verified is hollow and says so."""
    for place, (_, row) in enumerate(pair.iterrows()):
        name = "jax" if place else "pytorch"
        interval = row[["step_seconds", "step_seconds_low", "step_seconds_high"]].astype(float)
        middle, low, high = 1e3 * interval
        verified = row["verified"] == "yes"
        colour = palette.FRAMEWORKS[name][0]
        axes.bar(place, middle, width=0.6, color=colour if verified else "none", edgecolor=colour,
                 hatch=None if verified else "//", yerr=[[middle - low], [high - middle]],
                 ecolor=style.INK)
        text = number(middle) + ("" if verified else "\nrefused:\nnot fp32")
        axes.annotate(text, (place, high), ha="center", va="bottom", xytext=(0, 2),
                      textcoords="offset points")
    axes.set_xticks([0, 1], ["PyTorch", "JAX"])
    axes.set_xlim(-0.6, 1.6)
    axes.set_ylim(0, 2.6)
    axes.set_title(title)
    axes.grid(axis="y")


if __name__ == "__main__":
    main()
