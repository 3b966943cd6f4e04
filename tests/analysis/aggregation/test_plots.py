"""Campaigns on two wires stand side by side in the figures of an aggregation study: none is joined with the other's or left out."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.aggregation import links, plots, predictions, report
from analysis.aggregation.what_if import OTHER_LINKS, predict
from analysis.display.style import in_plain_numbers, one_two_five
from analysis.records import reader
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
        found.append(reader.read(made.write(tmp_path / wire)))
    return found


def what_if(campaigns, fits):
    return report._once(report._joined([predict(each, fits) for each in campaigns]))


def test_each_link_of_a_workload_is_one_line_over_the_devices(campaigns, fits):
    (axes,) = [axes for axes in plots.what_if(what_if(campaigns, fits)).axes if axes.axison]
    lines = {line.get_label(): line.get_xdata().tolist() for line in axes.lines}
    (measured,) = axes.collections
    assert measured.get_offsets()[:, 0].tolist() == [4, 4] and len(set(map(tuple, measured.get_edgecolors()))) == 2  # on both wires
    assert lines == {link: [2, 4, 8, 16] for link in ("this machine's", *OTHER_LINKS, "this machine's, p2p_off")}
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == len(lines)
    assert axes.get_title(loc="left") == "fcn5, batch 64, pytorch"


def test_nothing_is_called_measured_where_nothing_was(campaigns, fits):
    figure = plots.what_if(what_if(campaigns, fits).assign(measured_efficiency=float("nan")))
    assert "measured" not in {text.get_text() for text in figure.legends[0].get_texts()}


def test_workloads_that_differ_in_precision_are_told_apart(campaigns, fits):
    table = what_if(campaigns, fits)
    figure = plots.what_if(pd.concat([table, table.assign(precision="bf16")]))
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison] == [
        "fcn5, batch 64, pytorch fp32", "fcn5, batch 64, pytorch bf16"]


def test_rows_of_unlike_trials_have_names_of_their_own(draw_records, fits, tmp_path):
    found = []
    for name, batches in (("first", (64, 128)), ("second", (64,))):
        made = draw_records(networks=())
        made.meta["name"] = name
        for batch in batches:
            simulated.add_scaling(made, "fcn5", strategies=("ring",), counts=(1, 2), batch=batch, threads=1)
        found.append(reader.read(made.write(tmp_path / name)))
    names = ["ring, 2x, batch 64, first", "ring, 2x, batch 64, second", "ring, 2x, batch 128, first"]
    table = report._joined([predictions.of_campaign(each, fits) for each in found])
    (axes,) = [axes for axes in plots.predictions(predictions.with_settings(table, found)).axes if axes.axison]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    table = report._joined([predictions.overlaps(each, fits) for each in found])
    (axes,) = plots.overlap(predictions.with_settings(table, found)).axes
    assert sorted(label.get_text() for label in axes.get_yticklabels()) == sorted(f"fcn5, {name}" for name in names)


def test_what_if_panels_are_told_apart_by_data_and_threads(draw_records, fits, tmp_path):
    made = draw_records(networks=())
    for data, threads in (("device", 1), ("host", 2)):
        simulated.add_scaling(made, "fcn5", counts=(1, 2), data=data, threads=threads)
    figure = plots.what_if(what_if([reader.read(made.write(tmp_path / "campaign"))], fits))
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison] == [
        "fcn5, batch 64, pytorch data device 1 thread", "fcn5, batch 64, pytorch data host 2 threads"]


def test_the_steps_of_both_wires_have_rows_of_their_own(campaigns, fits):
    table = report._joined([predictions.overlaps(each, fits) for each in campaigns])
    (axes,) = plots.overlap(table).axes
    names = [f"fcn5, {strategy}, 4x, {wire}" for wire in ("default", "p2p_off") for strategy in ("ddp", "ring")]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    measured = next(line for line in axes.lines if line.get_marker() == "o")
    assert measured.get_ydata().tolist() == [0, 1, 2, 3]
    assert report.overlap_table(table)["wire"].tolist() == ["default"] * 4 + ["p2p_off"] * 4


def test_predictions_by_points_stand_beside_those_by_lines_and_what_was_measured(campaigns, fits):
    table = report._joined([predictions.of_campaign(each, fits) for each in campaigns])
    table["swept_seconds"] *= 2
    figure = plots.predictions(table)
    crosses = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    squares = next(line for line in figure.axes[0].lines if line.get_marker() == "s")
    assert crosses.get_xdata() / squares.get_xdata() == pytest.approx(2, rel=0.1)
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "predicted", "predicted by the links' measured points", "measured"}


def test_a_measured_aggregation_has_its_interval(campaigns, fits):
    table = report._joined([predictions.of_campaign(each, fits) for each in campaigns])
    (axes,) = [axes for axes in plots.predictions(table).axes if axes.axison]
    measured = next(each for each in axes.containers if each.get_label() == "measured")
    ends = [segment[:, 0].tolist() for segment in measured.lines[2][0].get_segments()]
    rows = table.sort_values(["wire", "devices", "strategy"])[["measured_seconds_low", "measured_seconds_high"]]
    assert ends == [pytest.approx(row.tolist()) for row in 1e3 * rows.to_numpy()]


@pytest.mark.parametrize(("largest", "labels"), [
    (20, ["1", "2", "5", "10", "20"]), (20_000, ["1", "10", "100", "1,000", "10,000"])])
def test_a_logarithmic_axis_of_many_decades_has_fewer_labels(largest, labels):
    axes = Figure().subplots()
    axes.plot([1, largest], [0, 1])
    axes.set_xscale("log")
    axes.set_xlim(0.9, 1.1 * largest)
    one_two_five(axes.xaxis)
    low, high = axes.get_xlim()
    shown = [place for place in axes.xaxis.get_major_locator()() if low <= place <= high]
    assert axes.xaxis.get_major_formatter().format_ticks(shown) == labels


def test_numbers_on_axes_are_written_out():
    axes = Figure().subplots()
    in_plain_numbers(axes.yaxis)
    assert axes.yaxis.get_major_formatter().format_ticks([0.5, 200_000.0, 1e6]) == ["0.5", "200,000", "1,000,000"]
