"""Looks: frameworks and strategies are told apart by colour and by marker, and who shares both is numbered."""

import pandas as pd

from analysis.display import palette
from analysis.display.palette import SeriesStyle

NINE = ("ddp", "ring", "tree", "gather", "host_one", "host_all", "one_bit", "power_sgd", "bf16_compress")  # of PyTorch


def looks_of(*rows):
    """The looks of series, each of a framework and a strategy."""
    table = pd.DataFrame(rows, columns=["series", "framework", "strategy"])
    return palette.series_styles(table["series"], table)


def test_no_two_frameworks_share_a_colour_or_a_marker():
    colours, markers = zip(*palette.FRAMEWORKS.values(), palette.OTHER, strict=True)
    assert len(set(colours)) == len(colours) and len(set(markers)) == len(markers)


def test_no_two_strategies_of_one_framework_share_a_colour_or_a_marker():
    found = looks_of(*((f"pytorch {name}", "pytorch", name) for name in NINE)).values()
    assert len({look.colour for look in found}) == len({look.marker for look in found}) == len(NINE)
    assert {look.number for look in found} == {0}
    for several in (("nccl", "hierarchical_copy", "one_device"), ("local", "device", "nccl"), ("data_parallel", "one_bit")):
        assert len({palette.STRATEGIES[name] for name in several}) == len(several)


def test_a_framework_with_one_strategy_keeps_its_look():
    one_device = (("jax", "jax", ""), ("pytorch", "pytorch", ""))  # the same series has no strategy there
    found = looks_of(("jax", "jax", "all_reduce"), ("pytorch", "pytorch", "ddp"), *one_device)
    assert found == {"pytorch": SeriesStyle(*palette.FRAMEWORKS["pytorch"], 0), "jax": SeriesStyle(*palette.FRAMEWORKS["jax"], 0)}


def test_who_shares_a_look_is_numbered():
    found = looks_of(("jax 0.10.2", "jax", ""), ("jax 0.9.2", "jax", ""), ("other", "unknown", ""), ("another", "unheard", ""))
    assert {name: look.number for name, look in found.items()} == {"jax 0.10.2": 0, "jax 0.9.2": 1, "another": 0, "other": 1}


def test_legends_have_one_order():
    found = looks_of(("pytorch tree", "pytorch", "tree"), ("jax", "jax", "all_reduce"), ("pytorch ddp", "pytorch", "ddp"))
    assert list(found) == ["pytorch ddp", "pytorch tree", "jax"]
