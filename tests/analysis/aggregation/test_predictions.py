"""Models beside measurements, on a campaign that was made from the models: errors are noise, and a planted one is found."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.aggregation import links, predictions, report, what_if
from analysis.records import reader
from analysis.strategies.facts import Leg
from tests.analysis import simulated
from tests.analysis.simulated import LINKS


@pytest.fixture(scope="module")
def fits():
    return links.fit_all(simulated.sweep(noise=0.01, devices=(2, 4)))


@pytest.fixture
def read(draw_records, tmp_path):
    """Write and read a campaign of one network: `read("fcn5", strategies=("ring",))`."""

    def make(network="fcn5", **options):
        made = draw_records(networks=())
        simulated.add_scaling(made, network, **options)
        return reader.read(made.write(tmp_path / "campaign"))

    return make


def test_every_strategy_is_predicted_within_the_noise_it_was_made_with(read, fits):
    found = predictions.of_campaign(read(strategies=("ddp", "ring", "tree", "gather", "host_one", "host_all")), fits)
    assert len(found) == 12 and set(found["devices"]) == {2, 4}
    assert found["error"].abs().max() < 0.08
    assert (found["measured_seconds_low"] < found["measured_seconds"]).all()


def test_a_prediction_says_what_it_is_made_of(read, fits):
    row = predictions.of_campaign(read(strategies=("gather",), counts=(1, 4)), fits).iloc[0]
    legs = {link: float(seconds) for link, seconds in (leg.split(" ") for leg in row["legs"].split("; "))}
    assert list(legs) == ["device_copy", "fan_in", "fan_out", "device_sum"]
    assert sum(legs.values()) == pytest.approx(row["predicted_seconds"], rel=0.01)
    assert 0 <= row["residual"] < 0.05


def test_a_prediction_by_the_links_of_another_group_says_so(read, fits):
    found = predictions.of_campaign(read(strategies=("gather",), counts=(1, 2, 4)), fits).set_index("devices")
    assert found["reason"].to_dict() == {2: "", 4: ""}
    only = predictions.of_campaign(read(strategies=("gather",), counts=(1, 4)), [each for each in fits if each.devices == 2])
    assert only["reason"].to_list() == ["predicted by links of 2 devices"]


def test_a_prediction_beyond_what_was_swept_says_so(read):
    windows = simulated.sweep(noise=0.01, devices=(2,))
    fits = links.fit_all(windows[(windows["bytes"] <= 2**25) | (windows["link"] != "fan_in")])
    found = predictions.of_campaign(read(strategies=("gather", "ring"), counts=(1, 2)), fits).set_index("strategy")["reason"]
    assert found.to_dict() == {"gather": "beyond the sweep: fan_in 54 MiB at once, swept up to 16", "ring": ""}


def test_a_link_that_is_no_line_at_that_size_misses_by_its_line_and_not_by_its_points(read):
    """FCN-5's ring over two sends 27 MiB at once: a link half as long again there, in the sweep and in the campaign alike."""
    windows = simulated.sweep(noise=0.0, devices=(2,))
    near = (windows["link"] == "shift") & windows["bytes"].isin([2**24, 2**26])
    windows.loc[near, "seconds"] *= 1.5
    campaign = read(strategies=("ring",), counts=(1, 2), isolated=1.0)
    straight = predictions.of_campaign(campaign, links.fit_all(simulated.sweep(noise=0.0, devices=(2,)))).iloc[0]
    shift = float(dict(leg.split(" ") for leg in straight["legs"].split("; "))["shift"])
    measured = (straight["predicted_seconds"] + 0.5 * shift) / straight["measured_seconds"]
    found = predictions.of_campaign(read(strategies=("ring",), counts=(1, 2), isolated=measured), links.fit_all(windows)).iloc[0]
    assert found["error"] < -0.08 and abs(found["swept_error"]) < 0.05


def test_an_aggregation_half_as_long_again_misses_the_model_by_a_third(read, fits):
    found = predictions.of_campaign(read(strategies=("ring",), isolated=1.5), fits)
    assert found["error"].to_list() == pytest.approx([-1 / 3] * 2, abs=0.05)


def test_a_campaign_with_peer_to_peer_off_is_held_against_that_wire(read, fits):
    campaign = read(strategies=("ring",))
    campaign.meta["variables"] = {"NCCL_P2P_DISABLE": "1"}
    found = predictions.of_campaign(campaign, fits)
    assert set(found["reason"]) == {"no fit of shift"} and found["predicted_seconds"].isna().all()
    slow = links.fit_all(simulated.sweep(devices=(2,), wires=("default", "p2p_off")))
    assert (predictions.of_campaign(campaign, slow)["error"] > 4).all()  # that wire is ten times as slow, and the campaign was not


def test_a_trial_without_phases_has_a_prediction_and_no_error(read, fits, draw_records, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", strategies=("ring",))
    made.phases.clear()
    found = predictions.of_campaign(reader.read(made.write(tmp_path / "plain")), fits)
    assert found["predicted_seconds"].notna().all() and found["error"].isna().all()


def test_the_layer_wise_model_finds_the_step_that_was_made_in_buckets(read, fits):
    found = predictions.overlaps(read("resnet56", strategies=("ddp", "ring")), fits)
    found = found.set_index(["strategy", "grouping", "devices"]).sort_index()
    assert set(found.loc["ddp"].index.get_level_values("grouping")) == {"layer", "bucket", "whole"}
    assert set(found.loc["ring"].index.get_level_values("grouping")) == {"whole"}
    assert found.loc[("ddp", "bucket"), "error"].abs().max() < 0.02
    assert found.loc[("ring", "whole"), "error"].abs().max() < 0.02


def test_ddp_copies_gradients_into_its_buckets_and_back_unless_tuned(read, fits):
    campaign = read("fcn5", strategies=("ddp", "ring"))
    stock = predictions.overlaps(campaign, fits).set_index(["strategy", "grouping", "devices"])["exposed_seconds"]
    for trial in campaign.trials:
        trial["tuning"] = "tuned"
    tuned = predictions.overlaps(campaign, fits).set_index(["strategy", "grouping", "devices"])["exposed_seconds"]
    copies = simulated.truth("device_copy").seconds(2, 2 * 56_823_848)
    assert (stock - tuned)["ddp"].to_list() == pytest.approx([copies] * 6, rel=0.03)  # three groupings on two and four devices
    assert (stock - tuned)["ring"].abs().max() == 0


def test_what_if_keeps_the_fitted_link_and_falls_with_slower_ones(read, fits):
    assumed = {"PCIe 3 as in the article": 8, "PCIe 5, 16 lanes": 55, "25 Gb/s Ethernet": 3.125, "100 Gb/s InfiniBand": 12.5,
               "400 Gb/s InfiniBand": 50, "NVLink 4": 450}  # GB/s and direction: a PCIe 5 lane has 3.9, 18 NVLinks of H100 25 each
    found = what_if.predict(read("fcn5"), fits).set_index(["link", "devices"])
    assert set(found.index.get_level_values("devices")) == {2, 4, 8, 16}
    efficiency = found["efficiency"]
    assert efficiency["NVLink 4", 8] > efficiency["PCIe 3 as in the article", 8] > efficiency["25 Gb/s Ethernet", 8]
    assert found["samples_per_second"].to_list() == pytest.approx(
        (64 * found.index.get_level_values("devices") / found["step_seconds"]).to_list())
    rates = found["bytes_per_second"].xs(8, level="devices").drop("this machine's") / 1e9
    assert rates.to_dict() == assumed
    own = found.loc[("this machine's", 4)]
    assert own["bytes_per_second"] == pytest.approx(1.5 * LINKS["all_reduce"][1], rel=0.03)


def test_what_if_tells_beside_this_machines_row_what_was_measured_there(read, fits):
    found = what_if.predict(read("fcn5", counts=(1, 2, 3)), fits)
    assert set(found["devices"]) == {2, 3, 4, 8, 16} and set(found["remark"]) == {""}
    measured = found[found["measured_efficiency"].notna()].set_index(["link", "devices"])["measured_efficiency"]
    alone = sum(simulated.PHASES["fcn5"])
    assert measured.to_dict() == {("this machine's", devices): pytest.approx(
        alone / simulated.step_seconds("fcn5", "ddp", devices)["FBAU"], rel=0.05) for devices in (2, 3)}
    words = "; ".join(f"{100 * efficiency:.0f} % on {devices}" for (_, devices), efficiency in measured.items())
    table = report.what_if_table(found)
    assert [column for column in table if column.endswith(" devices")] == [f"{count} devices" for count in (2, 3, 4, 8, 16)]
    assert table.set_index("link")["measured"].to_dict() == {**dict.fromkeys(what_if.OTHER_LINKS, ""), "this machine's": words}


def test_what_if_computes_as_devices_do_that_have_cores_of_their_own(read, fits):
    def of(counts, cores):
        campaign = read("fcn5", counts=counts, threads=1)
        campaign.meta["machine"]["cpu"]["allowed"] = cores
        crowded = campaign.phases["trial"].str.contains("-x3-")
        campaign.phases.loc[crowded, ["stop", "seconds"]] *= 2  # planted: three ranks on two cores
        return what_if.predict(campaign, fits).set_index(["link", "devices"])

    roomy, both, alone = of((1, 2), 2), of((1, 2, 3), 2), of((1, 3), 2)
    assert both.loc[roomy.index, "efficiency"].to_list() == roomy["efficiency"].to_list()
    assert both["measured_efficiency"].dropna().index.to_list() == [("this machine's", 2), ("this machine's", 3)]
    assert both.loc[both["remark"] != "", "remark"].to_dict() == {
        ("this machine's", 3): "measured where 3 devices share 2 cores"}
    words = "computing was timed where 3 devices share 2 cores, so efficiency comes out too high"
    assert set(alone["remark"]) == {words} and (alone["efficiency"] > both["efficiency"]).all()
    assert set(report.what_if_table(alone.reset_index())["remark"]) == {words}
    assert (of((1, 2, 3), 4)["remark"] == "").all()
    for order in ([roomy, alone], [alone, roomy]):
        found = report._once(report._joined([each.reset_index() for each in order]))
        assert set(found.loc[(found["devices"] != 3), "remark"]) == {""}


def test_a_workload_that_was_measured_on_fewer_devices_than_another_has_no_cell_there(draw_records, fits, tmp_path):
    made = draw_records(networks=())
    simulated.add_scaling(made, "fcn5", counts=(1, 3))
    simulated.add_scaling(made, "resnet56", counts=(1, 2))
    table = report.what_if_table(what_if.predict(reader.read(made.write(tmp_path / "campaign")), fits))
    assert (table.set_index("network")["3 devices"] == "").groupby("network").all().to_dict() == {"fcn5": False, "resnet56": True}


def test_what_if_needs_a_trial_whose_parts_were_timed(read, fits):
    campaign = read("fcn5", counts=(1, 2, 4))
    untimed = replace(campaign, phases=campaign.phases[~campaign.phases["trial"].str.contains("-x4-")])
    found = what_if.predict(untimed, fits)
    assert found.loc[found["measured_efficiency"].notna(), "devices"].to_list() == [2]


def test_what_if_copies_gradients_into_buckets_as_the_step_does(read, fits):
    campaign = read("fcn5")
    stock = what_if.predict(campaign, fits).set_index(["link", "devices"])["exposed_seconds"]
    for trial in campaign.trials:
        trial["tuning"] = "tuned"
    tuned = what_if.predict(campaign, fits).set_index(["link", "devices"])["exposed_seconds"]
    copies = simulated.truth("device_copy").seconds(2, 2 * 56_823_848)
    assert (stock - tuned).to_list() == pytest.approx([copies] * len(stock), rel=0.03)


def test_the_headline_counts_by_lines_and_by_points(read, fits):
    found = predictions.of_campaign(read(strategies=("ring", "tree", "gather")), fits)
    found["error"], found["swept_error"] = [0.1, 0.3, -0.1, -0.3, 0.5, 0.21], [0.1, -0.1, 0.2, 0.05, 0.02, 0.5]
    found["measured_seconds"] = found["predicted_seconds_high"] * [0.99, 0.99, 0.99, 1.01, 1.01, 1.01]
    assert report.headline(found) == (
        "2 of 6 aggregations predicted within 20 %; median error 26 %; 3 of them lie in the prediction's 95 % interval. "
        "By the links' measured points instead of the lines through them 5 of 6, 10 %.")


def test_links_of_few_processes_are_said_to_be():
    assert report.few(simulated.sweep(processes=3)) == ""
    assert [report.few(simulated.sweep(processes=count)).split(":")[0] for count in (1, 2)] == [
        " Links were swept in one process", " Links were swept in 2 processes"]


def test_what_an_unverified_trial_measured_speaks_neither_for_the_model_nor_against_it(read, fits):
    campaign = read(strategies=("ddp", "ring"), counts=(1, 4))
    campaign.processes.loc[campaign.processes["trial"].str.contains("ddp"), ["check", "check_reason"]] = ["different", "planted"]
    found = predictions.of_campaign(campaign, fits).set_index("strategy")
    assert found["reason"].to_dict() == {"ddp": "not verified: different from the reference: planted", "ring": ""}
    assert found["error"].notna().to_dict() == {"ddp": False, "ring": True}
    assert report.headline(found).startswith("1 of 1 ")
    assert set(predictions.overlaps(campaign, fits)["strategy"]) == {"ring"}
    assert what_if.predict(campaign, fits).empty
    unproven = replace(campaign, processes=campaign.processes.assign(check="different"))
    alone = predictions.of_campaign(unproven, fits)
    assert alone["error"].isna().all() and "the model is untested" in report.headline(alone)


def test_processes_that_took_unlike_times_are_no_line_and_widen_what_is_predicted(read):
    """As sums on the host of four GPUs: 2 ms in one process, 30 in two, for as many bytes."""
    windows = simulated.sweep(noise=0.01, devices=(2,))
    held_up = (windows["link"] == "host_sum_all") & (windows["process"] > 0) & (windows["bytes"] >= 2**22)
    windows.loc[held_up, "seconds"] += 10 * 0.03
    campaign = read(strategies=("host_all", "ring"), counts=(1, 2))
    found = predictions.of_campaign(campaign, links.fit_all(windows)).set_index("strategy")
    assert found.loc["ring", "reason"] == ""
    assert found.loc["host_all", "reason"].startswith("no line follows host_sum_all: processes took 3.")
    assert found.loc["host_all", "reason"].endswith("ms for as many bytes")
    assert found.loc["host_all", "predicted_seconds_high"] > 0.03


def test_points_far_from_the_line_in_all_processes_are_no_line(read):
    """FCN-5's ring over two sends 27 MiB at once: a link three times as long there and nowhere else."""
    windows = simulated.sweep(noise=0.0, devices=(2,))
    windows.loc[(windows["link"] == "shift") & windows["bytes"].isin([2**24, 2**26]), "seconds"] *= 3
    (row,) = predictions.of_campaign(read(strategies=("ring",), counts=(1, 2)), links.fit_all(windows)).to_dict("records")
    assert row["reason"].startswith("no line follows shift: 2.") and " ms by its points, " in row["reason"]


def test_noise_does_not_make_the_models_update_negative(read, fits):
    campaign = read(strategies=("ring",), counts=(1, 2))
    whole = campaign.phases["variant"] == "FBAU"
    usual = predictions.overlaps(campaign, fits)
    phases = campaign.phases.copy()
    # Of ten steps: the whole took less than without its update.
    phases.loc[whole, ["stop", "seconds"]] -= 0.05
    (row,) = predictions.overlaps(replace(campaign, phases=phases), fits).to_dict("records")
    assert row["update_seconds"] < 0
    assert row["step_seconds"] == pytest.approx(row["forward_seconds"] + row["backward_seconds"] + row["exposed_seconds"])
    assert row["step_seconds"] < usual["step_seconds"].iloc[0]


def test_a_bus_gives_back_the_all_reduce_that_it_was_made_from():
    fit = replace(simulated.truth("all_reduce", devices=4), floor_seconds=2e-4)
    bus = what_if.bus(fit)
    for size in (1e3, 1e8):  # on the floor, and on the line
        assert bus.ring_seconds(4, size) == pytest.approx(fit.seconds(1, size))
    assert bus.ring_seconds(4, 1e3) == pytest.approx(2e-4)


def test_what_was_measured_on_more_devices_in_another_campaign_is_kept_too(read, fits):
    both = [what_if.predict(read(counts=(1, devices)), fits) for devices in (2, 4)]
    for order in (both, both[::-1]):
        found = report._once(report._joined(order))
        assert not found.duplicated(["link", "devices"]).any()
        assert set(found.loc[found["measured_efficiency"].notna(), "devices"]) == {2, 4}


@pytest.fixture
def alike(draw_records, tmp_path):
    """Folders of campaigns of one network: G in two batches and tunings, A in one of these again and with batches from the host."""
    made = {name: draw_records(networks=()) for name in "GA"}
    for name, batch, tuning, data in (("G", 64, "stock", "device"), ("G", 64, "tuned", "device"), ("G", 128, "stock", "device"),
                                      ("A", 64, "stock", "device"), ("A", 64, "stock", "host")):
        made[name].meta["name"] = name
        simulated.add_scaling(made[name], "fcn5", strategies=("ddp", "ring"), counts=(1, 2), batch=batch, tuning=tuning, data=data)
    return [each.write(tmp_path / name) for name, each in made.items()]


def test_rows_of_unlike_trials_can_be_told_apart(alike, fits):
    campaigns = [reader.read(each) for each in alike]
    found = report.of_campaigns(fits, campaigns)
    own = ["framework", "network", "batch", "tuning", "data", "campaign", "devices", "strategy", "wire"]
    predicted = report.predicted_table(predictions.with_settings(found["predictions"], campaigns))
    assert list(predicted.columns[:9]) == own and len(predicted) == 10 and not predicted.duplicated(own).any()
    overlap = report.overlap_table(predictions.with_settings(found["overlap"], campaigns))
    assert list(overlap.columns[:10]) == [*own, "sent"] and len(overlap) == 20 and not overlap.duplicated([*own, "sent"]).any()
    what_if = report.what_if_table(found["what_if"])
    rows = what_if[what_if["link"] == "this machine's"][["batch", "tuning", "data"]].to_dict("split")["data"]
    assert rows == [[64, "stock", "device"], [64, "tuned", "device"], [128, "stock", "device"], [64, "stock", "host"]]


def test_the_page_tells_unlike_trials_apart_and_its_files_keep_their_columns(alike, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_figures", lambda *_: [])
    study = shutil.copytree(Path(__file__).parents[3] / "results" / "cpu-links-2026-11-21", tmp_path / "study")
    headers = {name: (study / f"{name}.csv").read_text().partition("\n")[0] for name in ("predictions", "overlap")}
    report.write(study, alike)
    assert {name: (study / f"{name}.csv").read_text().partition("\n")[0] for name in headers} == headers
    lines = (study / "report.md").read_text().splitlines()
    for batch, tuning, data, campaign in ((64, "stock", "device", "G"), (64, "tuned", "device", "G"), (64, "stock", "host", "A")):
        start = f"| pytorch | fcn5 | {batch} | {tuning} | {data} | {campaign} | 2 | ring | default |"
        assert len([line for line in lines if line.startswith(start)]) == 3  # as predicted, its bytes, behind the backward pass


def test_counted_bytes_stand_beside_those_of_the_model():
    each = {"framework": "pytorch", "network": "fcn5", "devices": 2, "legs": "shift 0.001", "residual": 0.1, "error": 0.0,
            "nvlink_bytes_per_step": 0.0, "pcie_rx_bytes_per_step": 1.16e8, "pcie_tx_bytes_per_step": 1.38e8}
    rows = [{"strategy": "ring", "wire": "default", "wire_bytes": 1e8, "host_bytes": 0.0, "nvlink_bytes_per_step": 1.001e8},
            {"strategy": "ring", "wire": "p2p_off", "wire_bytes": 1e8, "host_bytes": 0.0},
            {"strategy": "host_one", "wire": "default", "wire_bytes": 0.0, "host_bytes": 1.1e8},
            {"strategy": "power_sgd", "wire": "default", "wire_bytes": math.nan, "host_bytes": math.nan}]
    table = report.moved_table(pd.DataFrame([{**each, **row} for row in rows]))
    assert table["counted / model"].tolist() == ["1.00", "1.16", "1.05", ""]
    assert table["model: to the host"].tolist() == ["0 KiB", "0 KiB", "105 MiB", ""]
    assert report.moved_table(pd.DataFrame([{**each, **rows[0]}]).drop(columns="error")).empty


def test_what_tells_no_rows_apart_has_no_column(read, draw_records, fits, tmp_path):
    """Another batch of another network, and the same campaign on another number of devices, are told apart already."""
    made = draw_records(networks=())
    made.meta["name"] = "other"
    simulated.add_scaling(made, "resnet56", strategies=("ring",), counts=(1, 2), batch=16)
    campaigns = [read(strategies=("ring",)), reader.read(made.write(tmp_path / "other"))]
    found = report.of_campaigns(fits, campaigns)
    table = report.predicted_table(predictions.with_settings(found["predictions"], campaigns))
    assert list(table.columns[:6]) == ["framework", "network", "devices", "strategy", "wire", "predicted"]


def test_a_global_batch_is_told_where_the_batch_does_not_tell_it():
    rows = pd.DataFrame([{"network": "fcn5", "devices": 3, "batch": 33, "global_batch": whole} for whole in (99, 100)])
    assert predictions.telling(rows, ["network", "devices"]) == ["global_batch"]
    assert predictions.telling(rows.assign(batch=[33, 34], global_batch=[99, 102]), ["network", "devices"]) == ["batch"]


def test_without_a_campaign_every_network_is_predicted_on_every_group(fits):
    found = predictions.of_networks(fits)
    assert found.groupby(["network", "devices"]).size().nunique() == 1
    assert set(found["network"]) == set(predictions.NETWORKS) and found["predicted_seconds"].notna().all()


@pytest.mark.parametrize(("framework", "messages"), [("jax", 8), ("tensorflow", 1), ("paddle", 1), ("pytorch", 0)])
def test_another_frameworks_sum_over_nodes_is_timed_by_its_own_link(framework, messages):
    """FCN-5 has four matrices and four biases, which XLA sums one by one."""
    sizes = np.geomspace(2**14, 2**26, 7)
    fits = [links.fit(("nodes", 2, f"{name}_all_reduce"), sizes, 1e-3 + sizes / 1e8) for name in ("jax", "tensorflow", "paddle")]
    trial = {"framework": framework, "network": "fcn5", "nodes": 2, "devices": 2, "strategy": "all_reduce"}
    gradients = predictions._work("fcn5", 2, "all_reduce")
    chosen = links.chosen(fits, "nodes", 2)
    legs = predictions.own_legs(trial, gradients, chosen)
    link = f"{framework}_all_reduce"
    assert legs == ([Leg(link, messages, 4 * 14205962)] if messages else [])
    if messages:
        found = predictions._predicted("all_reduce", gradients, chosen, legs)
        assert found["predicted_seconds"] == pytest.approx(messages * 1e-3 + 4 * 14205962 / 1e8)
        assert found["reason"] == ""
    assert predictions.own_legs({**trial, "nodes": 1}, gradients, chosen) == []
    assert links.chosen(fits, "default", 2) == {}
