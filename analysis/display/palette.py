"""How a series looks in every figure of reports and of the site: a colour, a marker, and a number among those of one look.

A framework keeps its look everywhere; where a table holds several strategies of one framework, each strategy has its own instead.
Colours are those of Okabe and Ito, and markers differ too, so that neither colour-blind readers nor a grey print mix them up. Who
shares a look (a second release, another tuning) has the next number: an open marker, a broken line.
"""

from dataclasses import dataclass

import pandas as pd

FRAMEWORKS = {  # colour, marker
    "pytorch": ("#d55e00", "o"), "tensorflow": ("#0072b2", "s"), "jax": ("#009e73", "^"), "mxnet": ("#cc79a7", "D"),
    "cntk": ("#56b4e9", "v"), "caffe": ("#e69f00", "P"), "paddle": ("#8c8c8c", "X"),
}
STRATEGIES = {  # one algorithm looks alike in every framework
    **dict.fromkeys(("ddp", "all_reduce", "nccl", "data_parallel"), ("#0072b2", "o")),
    "ring": ("#d55e00", "s"),
    **dict.fromkeys(("tree", "hierarchical_copy"), ("#009e73", "^")),
    **dict.fromkeys(("gather", "one_device", "device"), ("#cc79a7", "D")),
    "host_one": ("#e69f00", "v"),
    **dict.fromkeys(("host_all", "local"), ("#56b4e9", "P")),
    "one_bit": ("#8c8c8c", "X"), "power_sgd": ("#8b5a2b", "*"), "bf16_compress": ("#999933", "h"),
}
OTHER = ("#555555", "*")
ORDER = [*FRAMEWORKS, *STRATEGIES]


@dataclass(frozen=True)
class Look:
    """`number` is 0 for the first series of its colour and marker, 1 for the second, and so on."""

    colour: str
    marker: str
    number: int


def looks(series: "pd.Series[str]", rows: pd.DataFrame) -> dict[str, Look]:
    """Choose the look of every name in `series`, in the order of legends; `rows` has each one's `framework` and `strategy`."""
    named = sorted(set(zip(map(str, rows["framework"]), map(str, rows["strategy"]), map(str, series), strict=True)),
                   key=lambda row: (_place(row[0]), _place(row[1]), row[2]))
    counts = rows["strategy"].where(rows["strategy"] != "").groupby(rows["framework"]).nunique()
    found: dict[str, Look] = {}
    for framework, strategy, name in named:
        if name in found:  # rows on one device have no strategy, and one name with those on several
            continue
        own = strategy and counts[framework] > 1
        colour, marker = STRATEGIES.get(strategy, OTHER) if own else FRAMEWORKS.get(framework, OTHER)
        number = sum((look.colour, look.marker) == (colour, marker) for look in found.values())
        found[name] = Look(colour, marker, number)
    return found


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)
