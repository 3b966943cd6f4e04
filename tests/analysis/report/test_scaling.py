"""Scaling against one device: speed-ups, efficiencies and winners of a campaign whose steps are known, and what is left out."""

import re

import pytest

from analysis.records import reader
from analysis.report import report, scaling, scaling_plots
from analysis.trials import phases, summary
from tests.analysis import simulated


@pytest.fixture
def read(draw_records, tmp_path):
    """Make a campaign with `read(add)`, where `add(made)` puts the trials in; returns it and its rows."""

    def make(add):
        made = draw_records(networks=())
        add(made)
        campaign = reader.read(made.write(tmp_path / "campaign"))
        return campaign, summary.summarise(campaign)

    return make


def expected(network, strategy, devices):
    return simulated.step_seconds(network, "", 1)["FBAU"] / simulated.step_seconds(network, strategy, devices)["FBAU"]


def test_weak_scaling_is_held_against_the_same_batch_on_one_device(read):
    found = scaling.curves(*read(lambda made: simulated.add_scaling(made, "fcn5", strategies=("ddp", "host_one"))))
    assert found[["contestant", "strategy", "scaling", "devices", "batch"]].to_numpy().tolist() == [
        [f"pytorch {strategy}", strategy, "weak", devices, 64] for strategy in ("ddp", "host_one") for devices in (1, 2, 4)]
    for _, row in found[found["devices"] > 1].iterrows():
        truth = expected("fcn5", row["strategy"], row["devices"])
        assert row["efficiency"] == pytest.approx(truth, rel=0.08)
        assert 0.99 * row["efficiency_low"] < truth < 1.01 * row["efficiency_high"]
        assert row["speedup"] == pytest.approx(row["devices"] * row["efficiency"])
    assert (found.loc[found["devices"] == 1, "efficiency"] == 1).all()


def test_strong_scaling_is_held_against_the_whole_batch_on_one_device(read):
    def add(made):
        made.add_trial("pytorch", "fcn5", 512, global_batch=512, slower=1.0)
        made.add_trial("pytorch", "fcn5", 128, devices=4, strategy="ddp", global_batch=512, slower=1.25)

    found = scaling.curves(*read(add))
    assert found[["scaling", "devices", "batch", "global_batch"]].to_numpy().tolist() == [
        ["strong", 1, 512, 512], ["strong", 4, 512, 512]]
    assert found["speedup"].iloc[1] == pytest.approx(4 / 1.25, rel=0.06)


def test_rows_without_one_device_or_that_are_not_verified_are_left_out(read):
    def add(made):
        simulated.add_scaling(made, "fcn5", counts=(2, 4))
        names = simulated.add_scaling(made, "resnet56", counts=(1, 2))
        made.processes_of(names[1])[0].update(check="different", check_reason="gradients")

    assert scaling.curves(*read(add)).empty


def test_the_fastest_strategy_is_named_and_what_cannot_be_told_from_it(read):
    several = ("ddp", "tree", "host_one")
    found = scaling.winners(*read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 4), strategies=several)))
    assert found["fastest"].to_list() == ["ddp"]
    assert found["times as long"].iloc[0].split(", ")[-1].startswith("host_one ")
    alike = scaling.winners(*read(lambda made: simulated.add_scaling(made, "resnet56", counts=(2,), strategies=("tree", "gather"))))
    assert alike["as fast, as far as can be seen"].iloc[0] in ("tree", "gather") and alike["times as long"].iloc[0] == ""


def test_too_few_processes_decide_between_no_strategies(read):
    few = {"counts": (2,), "strategies": ("ddp", "host_one"), "processes": 2}
    found = scaling.winners(*read(lambda made: simulated.add_scaling(made, "fcn5", **few)))
    assert found[["as fast, as far as can be seen", "times as long"]].to_numpy().tolist() == [["", ""]]
    assert found[scaling.UNDECIDED].iloc[0].startswith("host_one ")


def test_one_strategy_has_no_winner(read):
    assert scaling.winners(*read(lambda made: simulated.add_scaling(made, "fcn5"))).empty


def test_the_table_gives_rates_and_leaves_out_what_is_the_same_everywhere(read):
    table = scaling.table(scaling.curves(*read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 2)))))
    assert list(table) == ["network", "batch", "framework", "devices", "samples per second", "speed-up", "efficiency (%)"]
    assert table.loc[0, ["speed-up", "efficiency (%)"]].to_list() == ["1.00", "100"]
    assert " to " in table.loc[1, "efficiency (%)"]


def test_phases_are_listed_with_their_intervals(read):
    campaign, rows = read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 2), strategies=("ring",)))
    table = scaling.phase_table(phases.table(campaign, rows))
    assert list(table["framework"]) == ["pytorch", "pytorch"]
    assert list(table)[-2:] == ["aggregation, hidden (ms)", scaling.LEFT]
    assert (table["aggregation, hidden (ms)"] != "").to_list() == [False, True]


def test_what_the_parts_leave_of_the_step_is_said_where_all_were_timed(read):
    campaign, rows = read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 2), strategies=("ring",)))
    parts = phases.table(campaign, rows)
    parts.loc[:, ["forward", "backward", "update", "step"]] = [0.2, 0.4, 0.1, 1.0]
    parts.loc[1, "exposed"] = 0.35
    assert scaling.phase_table(parts)[scaling.LEFT].to_list() == ["+30.0", "-5.0"]
    parts.loc[:, "exposed"] = float("nan")
    assert scaling.phase_table(parts)[scaling.LEFT].to_list() == ["+30.0", ""]


def test_every_figure_has_a_panel_a_workload_and_a_row_a_trial(read):
    def add(made):
        simulated.add_scaling(made, "fcn5", strategies=("ddp", "ring"))
        simulated.add_scaling(made, "resnet56")

    campaign, rows = read(add)
    scaled = scaling.curves(campaign, rows)
    for figure in (scaling_plots.throughput(scaled), scaling_plots.efficiency(scaled)):
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["fcn5, batch 64 each", "resnet56, batch 64 each"]
    panels = scaling_plots.phases(phases.table(campaign, rows)).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["fcn5, batch 64", "resnet56, batch 64"]
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in panels]
    assert sum(map(len, labels)) == len(rows) and {"pytorch ddp, 2 devices", "pytorch ring, 2 devices"} <= set(labels[0])


def test_a_panel_says_what_all_its_rows_share_and_other_panels_do_not(read):
    def add(made):
        simulated.add_scaling(made, "fcn5", counts=(1, 2))
        simulated.add_scaling(made, "fcn5", counts=(2,), batch=32)

    panels = scaling_plots.phases(phases.table(*read(add))).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["fcn5, batch 64", "fcn5, batch 32, 2 devices"]


def test_the_whole_step_is_marked_where_its_parts_do_not_add_up_to_it(read):
    parts = phases.table(*read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 2), strategies=("ring",))))
    parts["update"] = -parts["update"]  # as noise may make it; a bar cannot show that
    parts["step"] *= 1.5
    (axes,) = scaling_plots.phases(parts).axes
    (marks,) = axes.lines
    assert marks.get_xdata().tolist() == pytest.approx((1e3 * parts["step"]).tolist())
    assert axes.get_xlim()[1] > marks.get_xdata().max()


@pytest.mark.parametrize(("low", "drawn"), [(0.001, True), (0.0, False), (float("nan"), True)])
def test_what_may_be_hidden_by_chance_is_not_hatched_and_the_title_says_so(read, low, drawn):
    parts = phases.table(*read(lambda made: simulated.add_scaling(made, "fcn5", counts=(2,))))
    parts[["hidden", "hidden_low", "hidden_high"]] = (0.002, low, 0.003)
    figure = scaling_plots.phases(parts)
    hatched = [bar.get_width() for bar in figure.axes[0].patches if bar.get_hatch()]
    assert hatched == [pytest.approx(2.0 if drawn else 0.0)]
    assert "hatching whose interval includes 0, are left out" in figure.get_suptitle().replace("\n", " ")


def test_a_title_speaks_of_intervals_where_a_row_on_several_devices_has_one(read):
    scaled = scaling.curves(*read(lambda made: simulated.add_scaling(made, "fcn5")))
    assert scaling_plots.efficiency(scaled).get_suptitle() == "Efficiency by devices, with 95 % intervals"
    above = scaled.assign(efficiency=scaled["efficiency"].where(scaled["devices"] == 1, 1.1), efficiency_high=1.2)
    # A narrow figure's title has several lines.
    title = scaling_plots.efficiency(above).get_suptitle().replace("\n", " ")
    assert title.endswith("; above 100 %: faster than that many single devices")
    scaled.loc[scaled["devices"] > 1, ["efficiency_low", "efficiency_high"]] = float("nan")  # as of one process
    assert scaling_plots.efficiency(scaled).get_suptitle() == "Efficiency by devices"


def test_intervals_of_several_series_stand_beside_one_another(read):
    scaled = scaling.curves(*read(lambda made: simulated.add_scaling(made, "fcn5", strategies=("ddp", "ring", "tree"))))
    (axes,) = scaling_plots.efficiency(scaled).axes
    curves = [container.lines[0].get_xdata() for container in axes.containers]
    assert len({tuple(places) for places in curves}) == 3
    assert all(abs(place - devices) < 0.1 for places in curves for place, devices in zip(places, (1, 2, 4), strict=True))


def test_a_step_none_of_whose_parts_were_measured_has_no_row_in_the_figure(read):
    campaign, rows = read(lambda made: simulated.add_scaling(made, "fcn5", counts=(1, 2), strategies=("ring",)))
    parts = phases.table(campaign, rows)
    parts.loc[parts["devices"] == 2, ["forward", "backward", "exposed", "update"]] = float("nan")
    assert [label.get_text() for label in scaling_plots.phases(parts).axes[0].get_yticklabels()] == ["pytorch"]


def test_what_is_hidden_is_hatched_on_the_page_too(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1, 2))
    report.write([made.write(tmp_path / "several")], tmp_path / "a")
    patterns = re.findall(r'<pattern id="phases-[^>]*>(.*?)</pattern>', (tmp_path / "a" / "report.html").read_text(), re.DOTALL)
    assert patterns and all(re.search(r"; stroke: #[0-9a-f]{6};", pattern) for pattern in patterns)


def test_a_report_of_steps_none_of_whose_parts_were_measured_has_the_table_and_no_figure(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1, 2))
    made.phases = [{"trial": row["trial"], "process": row["process"], "variant": row["variant"], "reason": "not offered"}
                   for row in made.phases]
    written = report.write([made.write(tmp_path / "refused")], tmp_path / "a", plots=True)
    assert not any(path.stem == "phases" and path.suffix == ".svg" for path in written)
    assert any(path.name == "phases.csv" for path in written)


def test_a_report_says_why_devices_that_share_the_cores_have_no_speed_up(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1,), threads=2)
    simulated.add_scaling(made, "fcn5", counts=(2,), threads=1)
    report.write([made.write(tmp_path / "shared")], tmp_path / "a", plots=False)
    for page in ("report.md", "report.html"):
        assert "With threads: 1 in the suite, all have the same number." in (tmp_path / "a" / page).read_text()


def test_a_report_names_the_strategy_that_wins_also_where_no_row_is_on_one_device(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(2,), strategies=("ddp", "host_one"))
    report.write([made.write(tmp_path / "strategies")], tmp_path / "a", plots=False)
    for page in ("report.md", "report.html"):
        text = (tmp_path / "a" / page).read_text()
        assert "Which aggregation strategy wins" in text
        assert "No speed-ups: no verified row on one device" in text and "Add 1 to the suite" in text


def test_a_report_names_rows_without_one_on_one_device(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1, 2))
    simulated.add_scaling(made, "resnet56", counts=(2, 4))
    report.write([made.write(tmp_path / "some")], tmp_path / "a", plots=False)
    for page in ("report.md", "report.html"):
        text = (tmp_path / "a" / page).read_text()
        assert "in nothing else: pytorch resnet56, batch 64, 2 devices; pytorch resnet56, batch 64, 4 devices." in text


def test_strong_scaling_is_called_so_and_weak_scaling_too(draw_records, tmp_path):
    weak, strong = draw_records(networks=()), draw_records(networks=())
    simulated.add_scaling(weak, "fcn5", counts=(1, 2))
    for devices in (1, 2):
        strong.add_trial("pytorch", "fcn5", 512 // devices, devices=devices, global_batch=512, slower=1 / devices)
    for made, name in ((weak, "weak"), (strong, "strong")):
        report.write([made.write(tmp_path / name)], tmp_path / f"{name}-page", plots=False)
    text = (tmp_path / "weak-page" / "report.md").read_text()
    assert "(weak scaling)." in text and "strong" not in text
    text = (tmp_path / "strong-page" / "report.md").read_text()
    assert "or in all (strong)." in text and "| scaling |" in text and "| strong |" in text


def test_a_report_shows_scaling_only_where_there_are_several_devices(draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1, 2))
    names = {path.name for path in report.write([made.write(tmp_path / "several")], tmp_path / "a", plots=False)}
    assert {"scaling.csv", "phases.csv"} <= names
    text = (tmp_path / "a" / "report.md").read_text()
    assert "## Several devices" in text and "plots/efficiency.svg" in text
    alone = draw_records(networks=("fcn5",))
    names = {path.name for path in report.write([alone.write(tmp_path / "alone")], tmp_path / "b", plots=False)}
    assert not {"scaling.csv", "phases.csv", "strategies.csv"} & names
