"""The figure of what the choice of algorithm is worth: sums of layers, and a strategy that has no answer for one of them."""

import math

import pandas as pd

from analysis.studies.conv_plot import choices

STRATEGIES = ("fastest", "no workspace")


def test_a_network_has_the_sum_of_its_layers_and_no_bar_where_a_layer_has_no_algorithm():
    layers = pd.DataFrame([
        {"network": "one", "batch": 8, "math": "fma", "fastest": 1e-3, "no workspace": 3e-3},
        {"network": "one", "batch": 8, "math": "fma", "fastest": 2e-3, "no workspace": 4e-3},
        {"network": "two", "batch": 4, "math": "fma", "fastest": 5e-3, "no workspace": 6e-3},
        {"network": "two", "batch": 4, "math": "fma", "fastest": 5e-3, "no workspace": math.nan},
    ])
    (axes,) = choices(layers, STRATEGIES).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one, batch 8", "two, batch 4"]
    assert axes.get_xlabel() == "all convolutions of a mini-batch (ms)"
    assert [text.get_text() for text in axes.texts] == [" 3.00", " 10.0", " 7.00", " none"]
