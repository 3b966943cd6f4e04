"""Tables of the layers study from measurements with known answers: who is fastest, and when nobody is."""

import pandas as pd
import pytest

from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW
from analysis.studies import layers


def row(bench, seconds, low=float("nan"), high=float("nan"), layout="nchw", precision="fp32", **changes):
    return {
        "bench": bench, "point": f"max_pool-{layout}-{precision}", "candidate": "forward_backward", "status": "ok", "reason": "",
        "seconds": seconds, "seconds_low": low, "seconds_high": high, "error": 1e-7, "layer": "max_pool", "layout": layout,
        "precision": precision, **changes,
    }


@pytest.mark.parametrize(("intervals", "answer"), [
    (((0.9e-3, 1.1e-3), (1.2e-3, 1.4e-3)), "jax"),
    (((0.9e-3, 1.25e-3), (1.2e-3, 1.4e-3)), NO_DIFFERENCE),
    (((float("nan"),) * 2, (float("nan"),) * 2), TOO_FEW),
])
def test_the_fastest_is_named_where_its_interval_lies_below_the_others(intervals, answer):
    found = pd.DataFrame([row("pytorch", 1.3e-3, *intervals[1]), row("jax", 1e-3, *intervals[0]),
                          row("mxnet", float("nan"), status="unsupported")])
    (shown,) = layers.by_layer(found).to_dict("records")
    assert (shown["fastest"], shown["mxnet"], shown["pass"]) == (answer, "unsupported", "forward and backward")


def test_layout_and_precision_are_compared_within_a_framework():
    found = pd.DataFrame([row("jax", 2.0), row("jax", 1.0, layout="nhwc"), row("jax", 0.5, precision="fp16")])
    (shown,) = layers.changes(found).to_dict("records")
    assert (shown["NHWC / NCHW"], shown["fp16 / fp32"]) == ("0.500", "0.250")


def test_a_layer_of_one_layout_and_precision_has_nothing_to_compare():
    assert layers.changes(pd.DataFrame([row("jax", 2.0)])).empty


def test_the_size_of_each_layer_is_told_once():
    points = pd.DataFrame([{"layer": "max_pool", "layout": layout, "precision": "fp32", "batch": 8, "kernel": 3, "classes": ""}
                           for layout in ("nchw", "nhwc")])
    assert layers.sizes(points).values.tolist() == [["max pool", "batch 8, kernel 3"]]


def test_the_worst_error_is_named_with_its_layer():
    found = pd.DataFrame([row("jax", 2.0), row("jax", 1.0, layout="nhwc", error=3e-5)])
    (shown,) = layers.errors(found).to_dict("records")
    assert (shown["largest"], shown["of"]) == ("3.0e-05", "max_pool-nhwc-fp32, forward and backward")
