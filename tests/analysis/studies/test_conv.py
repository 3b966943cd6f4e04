"""The figure of what the choice of algorithm is worth: sums of layers, and a strategy that has no answer for one of them."""

import math

import pandas as pd

from analysis.studies import conv


def test_a_network_has_the_sum_of_its_layers_and_no_bar_where_a_layer_has_no_algorithm():
    rows = [("one", 8, 1e-3, 3e-3), ("one", 8, 2e-3, 4e-3), ("two", 4, 5e-3, 6e-3), ("two", 4, 5e-3, math.nan)]
    layers = pd.DataFrame([
        {"network": network, "batch": batch, "math": "fma", **dict.fromkeys(conv.STRATEGIES, fastest), "no workspace": without}
        for network, batch, fastest, without in rows])
    (axes,) = conv.choices(layers).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one, batch 8", "two, batch 4"]
    assert axes.get_xlabel() == "all convolutions of a mini-batch (ms)"
    assert [text.get_text() for text in axes.texts] == [" 3.00", " 10.0", " 3.00", " 10.0", " 7.00", " none", " 3.00", " 10.0"]
