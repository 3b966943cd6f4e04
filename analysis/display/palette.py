"""Colours and markers of frameworks, strategies and kernels in all figures, those of the site too.

A framework keeps its colour and marker everywhere. Where a table holds several strategies of one
framework, each strategy has its own instead. Colours are those of Okabe and Ito, and markers differ
too, for colour-blind readers and grey prints. Series that share both, as two releases do, are
numbered: the second has an open marker and a broken line.
"""

from dataclasses import dataclass

import pandas as pd

from analysis.traces.kernels import CLASSES, IDLE

# Colour and marker.
FRAMEWORKS = {
    "pytorch": ("#d55e00", "o"), "tensorflow": ("#0072b2", "s"), "jax": ("#009e73", "^"),
    "mxnet": ("#cc79a7", "D"), "cntk": ("#56b4e9", "v"), "caffe": ("#e69f00", "P"),
    "paddle": ("#8c8c8c", "X"), "onnxruntime": ("#8b5a2b", "p"), "openvino": ("#999933", "h"),
}
# One algorithm looks alike in every framework.
STRATEGIES = {
    **dict.fromkeys(("ddp", "all_reduce", "nccl", "data_parallel"), ("#0072b2", "o")),
    "ring": ("#d55e00", "s"),
    **dict.fromkeys(("tree", "hierarchical_copy"), ("#009e73", "^")),
    **dict.fromkeys(("gather", "one_device", "device"), ("#cc79a7", "D")),
    "host_one": ("#e69f00", "v"),
    **dict.fromkeys(("host_all", "local"), ("#56b4e9", "P")), "multi_worker": ("#e69f00", "^"),
    "one_bit": ("#8c8c8c", "X"), "power_sgd": ("#8b5a2b", "*"), "bf16_compress": ("#999933", "h"),
    "tensor": ("#d55e00", "^"), "pipeline_gpipe": ("#009e73", "v"),
    "pipeline_1f1b": ("#cc79a7", "s"), "fsdp": ("#e69f00", "P"),
}
OTHER = ("#555555", "*")
DISTINCT = tuple(dict.fromkeys(STRATEGIES.values()))
ORDER = [*FRAMEWORKS, *STRATEGIES]
# Classes of kernels: colours for computing, greys for the rest.
KERNELS = dict(zip((*CLASSES, IDLE), (
    "#d55e00", "#e69f00", "#8b5a2b", "#0072b2", "#56b4e9", "#cc79a7", "#009e73", "#f0e442",
    "#8c8c8c", "#bdbdbd", "#24292f", "#e8ebee"), strict=True))


@dataclass(frozen=True)
class SeriesStyle:
    """`number` is 0 for the first series of its colour and marker, 1 for the second, and so on."""

    colour: str
    marker: str
    number: int


def series_styles(series: "pd.Series[str]", rows: pd.DataFrame) -> dict[str, SeriesStyle]:
    """Choose the style of every name in `series`, in the order of legends.

    `rows` has the `framework` and `strategy` of each.
    """
    columns = (rows["framework"].map(str), rows["strategy"].map(str), series.map(str))
    named = sorted(set(zip(*columns, strict=True)),
                   key=lambda row: (place(row[0]), place(row[1]), row[2]))
    strategies = rows["strategy"].where(rows["strategy"] != "")
    counts = strategies.groupby(rows["framework"]).nunique()
    found: dict[str, SeriesStyle] = {}
    for framework, strategy, name in named:
        # A row on one device has no strategy, and the name of the rows on several.
        if name in found:
            continue
        own = strategy and counts[framework] > 1
        look = STRATEGIES.get(strategy, OTHER) if own else FRAMEWORKS.get(framework, OTHER)
        number = sum((other.colour, other.marker) == look for other in found.values())
        found[name] = SeriesStyle(*look, number)
    return found


def place(name: str) -> int:
    """Return where a framework or strategy stands among all; unknown ones come last."""
    return ORDER.index(name) if name in ORDER else len(ORDER)
