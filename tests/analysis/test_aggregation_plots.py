"""Campaigns on two wires stand side by side in the figures of an aggregation study: none is joined with the other's or left out."""

import pandas as pd
import pytest

from analysis import aggregation_plots, aggregation_report, links, predictions, records
from tests.analysis import simulated


@pytest.fixture(scope="module")
def fits():
    return links.fit_all(simulated.sweep(noise=0.01, devices=(2, 4), wires=("default", "p2p_off")))


@pytest.fixture
def campaigns(draw_records, tmp_path):
    """The same trials, once as they come and once with peer-to-peer off."""
    found = []
    for wire in ("default", "p2p_off"):
        made = draw_records(networks=())
        made.meta["name"] = wire
        made.meta["variables"] = {"NCCL_P2P_DISABLE": "1"} if wire == "p2p_off" else {}
        simulated.add_scaling(made, "fcn5", strategies=("ddp", "ring"), counts=(1, 4), slower=1.0 if wire == "default" else 1.3)
        found.append(records.read(made.write(tmp_path / wire)))
    return found


def what_if(campaigns, fits):
    return aggregation_report._once(aggregation_report._joined([predictions.what_if(each, fits) for each in campaigns]))


def test_each_link_of_a_workload_is_one_line_over_the_devices(campaigns, fits):
    (axes,) = [axes for axes in aggregation_plots.what_if(what_if(campaigns, fits)).axes if axes.axison]
    lines = {line.get_label(): line.get_xdata().tolist() for line in axes.lines}
    assert lines == {link: [2, 4, 8, 16] for link in ("this machine's", *predictions.OTHER_LINKS, "this machine's, p2p_off")}
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == len(lines)
    assert axes.get_title(loc="left") == "fcn5, batch 64, pytorch"


def test_workloads_that_differ_in_precision_are_told_apart(campaigns, fits):
    table = what_if(campaigns, fits)
    figure = aggregation_plots.what_if(pd.concat([table, table.assign(precision="bf16")]))
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison] == [
        "fcn5, batch 64, pytorch fp32", "fcn5, batch 64, pytorch bf16"]


def test_the_steps_of_both_wires_have_rows_of_their_own(campaigns, fits):
    table = aggregation_report._joined([predictions.overlaps(each, fits) for each in campaigns])
    (axes,) = aggregation_plots.overlap(table).axes
    names = [f"fcn5, {strategy}, 4x, {wire}" for wire in ("default", "p2p_off") for strategy in ("ddp", "ring")]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    measured = next(line for line in axes.lines if line.get_marker() == "o")
    assert measured.get_ydata().tolist() == [0, 1, 2, 3]
    assert aggregation_report.overlap_table(table)["wire"].tolist() == ["default"] * 4 + ["p2p_off"] * 4
