"""Counters integrated over windows: known rates come back, and what was broken, missing or throttled is left out and said."""

import numpy as np
import pandas as pd
import pytest

from analysis.records import reader
from analysis.report import plots, report, sections, tables
from analysis.trials import counters, cross_check, summary

PYTORCH = "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"
RATES = {"pcie_rx_bytes": 3e9, "pcie_tx_bytes": 5e7, "energy_joules": 400.0}  # a second


@pytest.fixture
def sampled(made):
    """A campaign whose PyTorch trial ran on one GPU with counters at known rates, a sample each 20 ms, the energy at 400 W."""
    made.trial(PYTORCH).update(device_kind="cuda", devices=1)
    for process in range(5):
        windows = [row for row in made.windows_of(PYTORCH) if row["process"] == process]
        for seconds in np.arange(windows[0]["start"] - 0.05, windows[-1]["stop"] + 0.05, 0.02):
            passed = seconds - windows[0]["start"] + 1
            made.counters.append({
                "trial": PYTORCH, "process": process, "device": "gpu0", "kind": "fast", "seconds": seconds, "event_reasons": 0,
                "broken": "", **{column: rate * passed for column, rate in RATES.items()}})
        slow(made, process, windows)
    return made


def slow(made, process, windows, counter=400.0, gpm=3e9, processes=1):
    for seconds in np.arange(windows[0]["start"], windows[-1]["stop"], 0.5):
        made.counters.append({
            "trial": PYTORCH, "process": process, "device": "gpu0", "kind": "slow", "seconds": seconds, "processes": processes,
            "energy_counter_joules": 9e6 + counter * seconds, "gpm_pcie_rx_bytes_per_second": gpm, "broken": ""})


def row_of(made, folder):
    return summary.summarise(reader.read(made.write(folder))).set_index("trial").loc[PYTORCH]


def at(made, process, window):
    """The fast sample within a window, and the window."""
    own = next(row for row in made.windows_of(PYTORCH) if (row["process"], row["window"]) == (process, window))
    inside = [row for row in made.counters if row["process"] == process and row["kind"] == "fast"
              and own["start"] < row["seconds"] < own["stop"]]
    return inside[len(inside) // 2], own


def test_known_rates_come_back_per_mini_batch(sampled, tmp_path):
    row = row_of(sampled, tmp_path)
    assert row["pcie_rx_bytes_per_step"] == pytest.approx(3e9 * row["step_seconds"], rel=1e-3)
    assert row["pcie_tx_bytes_per_step"] == pytest.approx(5e7 * row["step_seconds"], rel=1e-3)
    assert row["energy_joules_per_step"] == pytest.approx(400 * row["step_seconds"], rel=1e-3)
    assert pd.isna(row["nvlink_bytes_per_step"])
    assert (row["throttled_windows"], row["reason"]) == (0, "")


def test_a_window_between_two_samples_gets_its_share(sampled, tmp_path):
    kept = [row for number, row in enumerate(sampled.counters) if row["kind"] == "slow" or number % 10 == 0]
    sampled.counters = kept
    assert row_of(sampled, tmp_path)["pcie_rx_bytes_per_step"] == pytest.approx(
        3e9 * row_of(sampled, tmp_path)["step_seconds"], rel=1e-3)


def test_a_broken_window_is_left_out_and_said(sampled, tmp_path):
    sample, _ = at(sampled, 2, 1)
    sample["broken"] = "pcie: no reading for 90 ms"
    for row in sampled.counters:  # as if 4 GiB had gone unseen
        if row["process"] == 2 and row["kind"] == "fast" and row["seconds"] >= sample["seconds"]:
            row["pcie_rx_bytes"] -= 2**32
    row = row_of(sampled, tmp_path)
    assert row["pcie_rx_bytes_per_step"] == pytest.approx(3e9 * row["step_seconds"], rel=1e-3)
    assert row["reason"] == "PCIe bytes of 1 of 25 windows not measured: no reading for 90 ms"
    assert row["energy_joules_per_step"] == pytest.approx(400 * row["step_seconds"], rel=1e-3)


def test_a_lost_gpu_breaks_all_its_quantities(sampled, tmp_path):
    for row in sampled.counters:
        if row["kind"] == "fast":
            row["broken"] = "gpu: GPU is lost"
    row = row_of(sampled, tmp_path)
    assert row["reason"] == ("PCIe bytes of 25 of 25 windows not measured: GPU is lost; "
                             "energy of 25 of 25 windows not measured: GPU is lost")
    assert pd.isna(row["pcie_rx_bytes_per_step"]) and pd.isna(row["energy_joules_per_step"])
    assert row["verified"] == "yes" and row["step_seconds"] > 0


def test_a_window_without_samples_on_both_sides_is_not_extrapolated(sampled, tmp_path):
    _, window = at(sampled, 4, 4)
    sampled.counters = [row for row in sampled.counters if row["process"] != 4 or row["seconds"] < window["stop"]]
    reason = row_of(sampled, tmp_path)["reason"]
    assert "PCIe bytes of 1 of 25 windows not measured: no samples of gpu0 on both sides of it alone" in reason


def test_devices_are_added(sampled, tmp_path):
    sampled.trial(PYTORCH)["devices"] = 2
    one = row_of(sampled, tmp_path / "one")
    assert pd.isna(one["pcie_rx_bytes_per_step"])
    assert one["reason"] == "PCIe bytes not measured: no samples of gpu1; energy not measured: no samples of gpu1"
    sampled.counters += [{**row, "device": "gpu1"} for row in sampled.counters]
    row = row_of(sampled, tmp_path / "two")
    assert row["pcie_rx_bytes_per_step"] == pytest.approx(6e9 * row["step_seconds"], rel=1e-3)


def silence(made, process, device="gpu0"):
    """Take a device's samples of a process away, but for the row that says at its end why there are none."""
    made.counters = [row for row in made.counters if (row["process"], row["device"]) != (process, device)]
    stop = max(window["stop"] for window in made.windows_of(PYTORCH) if window["process"] == process)
    made.counters.append({"trial": PYTORCH, "process": process, "device": device, "kind": "edge", "seconds": stop + 0.1,
                          "broken": "gpu: no answer from its driver since an earlier process"})


def test_a_process_that_a_gpu_was_left_out_of_says_why(sampled, tmp_path):
    sampled.trial(PYTORCH)["devices"] = 2
    sampled.counters += [{**row, "device": "gpu1"} for row in sampled.counters]
    silence(sampled, 2, "gpu1")
    row = row_of(sampled, tmp_path)
    why = "of 5 of 25 windows not measured: no answer from its driver since an earlier process"
    assert row["reason"] == f"PCIe bytes {why}; energy {why}"
    assert row["pcie_rx_bytes_per_step"] == pytest.approx(6e9 * row["step_seconds"], rel=0.02)  # whose median is of five processes


def test_a_trial_that_its_gpu_was_left_out_of_says_why(sampled, tmp_path):
    for process in range(5):
        silence(sampled, process)
    row = row_of(sampled, tmp_path)
    why = "not measured: no samples of gpu0 (no answer from its driver since an earlier process)"
    assert row["reason"] == f"PCIe bytes {why}; NVLink bytes {why}; energy {why}"
    assert pd.isna(row["energy_joules_per_step"]) and row["verified"] == "yes"


def read_nvlink(made, devices, before=0.015, after=0.001):
    """Read NVLink's counter so long before and after each window; a step sends 1 MB, the time between windows nothing."""
    for process in range(5):
        done = 0
        for window in (row for row in made.windows_of(PYTORCH) if row["process"] == process):
            for seconds, steps in ((window["start"] - before, 0), (window["stop"] + after, window["steps"])):
                done += steps
                made.counters += [{"trial": PYTORCH, "process": process, "device": device, "kind": "edge", "seconds": seconds,
                                   "nvlink_tx_bytes": 1e6 * done, "broken": ""} for device in devices]


@pytest.fixture
def with_pauses(sampled):
    """The campaign with 20 ms between windows, in which NVLink's counters can be read."""
    for window in sampled.windows_of(PYTORCH):
        window["start"] += 0.02
        window["seconds"] -= 0.02
    return sampled


def test_nvlink_bytes_are_those_from_reading_to_reading_however_long_one_takes(with_pauses, tmp_path):
    with_pauses.trial(PYTORCH)["devices"] = 2
    with_pauses.counters += [{**row, "device": "gpu1"} for row in with_pauses.counters]
    read_nvlink(with_pauses, ["gpu0"])
    one = row_of(with_pauses, tmp_path / "one")
    assert pd.isna(one["nvlink_bytes_per_step"]) and one["reason"] == "NVLink bytes not measured: no samples of gpu1"
    read_nvlink(with_pauses, ["gpu1"])
    assert row_of(with_pauses, tmp_path / "two")["nvlink_bytes_per_step"] == 2e6


def test_nvlink_bytes_of_two_windows_between_readings_are_not_shared_out(with_pauses, tmp_path):
    read_nvlink(with_pauses, ["gpu0"])
    first, second = (row for row in with_pauses.windows_of(PYTORCH) if row["process"] == 0 and row["window"] in (1, 2))
    with_pauses.counters = [row for row in with_pauses.counters
                            if row["kind"] != "edge" or row["process"] or not first["stop"] <= row["seconds"] <= second["start"]]
    row = row_of(with_pauses, tmp_path)
    assert row["nvlink_bytes_per_step"] == 1e6
    assert "NVLink bytes of 2 of 25 windows not measured: no samples of gpu0 on both sides of it alone" in row["reason"]


def test_pcie_bytes_that_come_at_a_windows_end_are_all_its_own(with_pauses, tmp_path):
    """A step's last burst lies between the last reading within the window and the one at its edge, up to 21 ms later."""
    with_pauses.counters = [row for row in with_pauses.counters if row["kind"] != "fast"]
    for process in range(5):
        total = 0.0
        for window in (row for row in with_pauses.windows_of(PYTORCH) if row["process"] == process):
            each = {"trial": PYTORCH, "process": process, "device": "gpu0", "event_reasons": 0, "broken": ""}
            for kind, seconds, burst in (("edge", window["start"] - 0.001, 0.0), ("fast", window["stop"] - 0.008, 0.0),
                                         ("edge", window["stop"] + 0.015, 1e6 * window["steps"])):
                total += burst
                with_pauses.counters.append({**each, "kind": kind, "seconds": seconds, "pcie_rx_bytes": total,
                                             "pcie_tx_bytes": total, "energy_joules": 400.0 * seconds})
    row = row_of(with_pauses, tmp_path)
    assert row["pcie_rx_bytes_per_step"] == row["pcie_tx_bytes_per_step"] == 1e6
    lasting = [(window["stop"] - window["start"]) / window["steps"] for window in with_pauses.windows_of(PYTORCH)]
    assert 400 * min(lasting) <= row["energy_joules_per_step"] <= 400 * max(lasting)  # what flows between windows is not theirs


@pytest.mark.parametrize(("bits", "reason"), [
    (0x04, "1 of 25 windows throttled: software power cap"),
    (0x60, "1 of 25 windows throttled: software thermal slowdown, hardware thermal slowdown"),
    (0x13, ""),  # idle, application clocks, sync boost
])
def test_throttled_windows_are_counted_and_named(sampled, tmp_path, bits, reason):
    sample, _ = at(sampled, 0, 3)
    sample["event_reasons"] = bits
    row = row_of(sampled, tmp_path)
    assert (row["throttled_windows"], row["reason"]) == (1 if reason else 0, reason)


def test_a_driver_throttled_while_warming_up_is_no_throttled_window(sampled, tmp_path):
    sample, _ = at(sampled, 0, -2)
    sample["event_reasons"] = 0x04
    assert row_of(sampled, tmp_path)["throttled_windows"] == 0


def test_samples_of_an_old_driver_state_their_coverage(sampled, tmp_path):
    for row in sampled.counters:
        if row["kind"] == "fast":
            row.update(kind="sampled", pcie_covered_seconds=0.47 * row["seconds"])
    row = row_of(sampled, tmp_path)
    assert row["reason"] == "PCIe bytes from 20 ms samples of 47 % of the time"
    assert row["pcie_rx_bytes_per_step"] == pytest.approx(3e9 * row["step_seconds"], rel=1e-3)


def replace_slow(made, **changes):
    made.counters = [row for row in made.counters if row["kind"] == "fast"]
    for process in range(5):
        slow(made, process, [row for row in made.windows_of(PYTORCH) if row["process"] == process], **changes)


@pytest.mark.parametrize(("changes", "reason"), [
    ({}, ""),
    ({"counter": 480.0}, "the energy counter shows 1.20 times the joules of the power sensor"),
    ({"gpm": 1.5e9}, "GPM counts 0.50 times the PCIe bytes of the counters"),
    ({"processes": 2}, "2 processes were on one GPU"),
])
def test_two_ways_to_measure_one_thing_must_agree(sampled, tmp_path, changes, reason):
    replace_slow(sampled, **changes)
    assert row_of(sampled, tmp_path)["reason"] == reason


def test_traffic_that_comes_in_some_processes_only_is_said(sampled, tmp_path):
    for row in sampled.counters:
        if row["process"] == 2 and "pcie_rx_bytes" in row:
            row["pcie_rx_bytes"] /= 100
    row = row_of(sampled, tmp_path)
    assert "PCIe bytes received are unlike from process to process: 1.76 to 180 MiB a step" in row["reason"]
    assert "bytes sent are unlike" not in row["reason"]


def test_workers_that_are_kept_are_a_campaigns_own(sampled, tmp_path):
    for row in sampled.counters:
        row.update({"processes": 4} if row["kind"] == "slow" else {})
    sampled.meta["suite"].update(prepare_jobs=2)
    assert "4 processes were on one GPU" in row_of(sampled, tmp_path / "ended")["reason"]
    sampled.meta["suite"].update(keep_workers=True)
    assert "processes were on one GPU" not in row_of(sampled, tmp_path / "kept")["reason"]


def test_the_cross_checks_of_agreeing_counters_are_one(sampled, tmp_path):
    campaign = reader.read(sampled.write(tmp_path))
    assert cross_check.ratios(campaign, sampled.trial(PYTORCH)) == {
        "energy_counter_ratio": pytest.approx(1, abs=1e-6), "gpm_ratio": pytest.approx(1, abs=1e-6)}


def test_a_trial_on_cpus_has_the_energy_of_its_host_and_no_throttling(made, tmp_path):
    for window in made.windows_of(PYTORCH):
        made.counters += [{"trial": PYTORCH, "process": window["process"], "device": "host", "kind": "fast", "broken": "",
                           "seconds": window[edge], "energy_joules": 50 * window[edge]} for edge in ("start", "stop")]
    row = row_of(made, tmp_path)
    assert row["energy_joules_per_step"] == pytest.approx(50 * row["step_seconds"], rel=1e-6)
    assert pd.isna(row["throttled_windows"]) and row["reason"] == ""


def test_a_campaign_without_counters_has_none_and_says_nothing(made, tmp_path):
    row = row_of(made, tmp_path)
    assert all(pd.isna(row[column]) for column in (*counters.QUANTITIES, "throttled_windows")) and row["reason"] == ""


def test_a_dirty_machine_marks_every_row(made, tmp_path):
    made.add_trial("jax", "alexnet_cifar", 128, status="unsupported", reason="no wheel")
    made.meta["dirty"] = ["GPU 0: other processes use it: 7 miner"]
    reasons = summary.summarise(reader.read(made.write(tmp_path)))["reason"]
    assert reasons.tolist() == ["measured on a dirty machine: GPU 0: other processes use it: 7 miner"] * 2 + [
        "no wheel; measured on a dirty machine: GPU 0: other processes use it: 7 miner"]


def test_counters_of_an_unfinished_process_are_left_out(sampled, tmp_path):
    sampled.processes = [row for row in sampled.processes if (row["trial"], row["process"]) != (PYTORCH, 3)]
    assert 3 not in set(reader.read(sampled.write(tmp_path)).counters["process"])


def test_the_report_has_a_table_and_plots_of_what_was_measured(sampled, tmp_path):
    campaign = reader.read(sampled.write(tmp_path / "a"))
    rows = summary.summarise(campaign)
    table = tables.traffic(rows, {PYTORCH: {"gpm_ratio": 1.02}})
    assert list(table) == ["network", "batch", "device_kind", "framework", "PCIe received (MiB)", "PCIe sent (MiB)", "energy (J)",
                           "throttled windows", "PCIe received: GPM / counters"]
    assert table["throttled windows"].tolist() == ["0 of 25"] and len(table) == 1
    for figure in (plots.by_batch(rows, "pcie_rx_bytes_per_step"), plots.by_batch(rows, "energy_joules_per_step")):
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pytorch"]
    names = [path.name for path in report.write([tmp_path / "a"], tmp_path / "out")]
    assert {"traffic.csv", "energy.svg", "pcie_received.svg"} <= set(names)
    assert "Traffic and energy of a mini-batch" in (tmp_path / "out" / "report.html").read_text()
    page = (tmp_path / "out" / "report.md").read_text()
    assert "![pcie received](plots/pcie_received.svg)\nFigure: pcie received.\n" in page
    assert sections.CHECKED in page


def test_columns_that_check_others_are_explained_only_where_they_are(sampled, tmp_path):
    sampled.counters = [row for row in sampled.counters if row["kind"] == "fast"]
    report.write([sampled.write(tmp_path / "a")], tmp_path / "out", plots=False)
    page = (tmp_path / "out" / "report.md").read_text()
    assert "Bytes on the links include packet headers." in page and sections.CHECKED not in page
