"""trials.csv: stable columns, a row for every trial, and a reason wherever a number is missing."""

import numpy as np
import pandas as pd
import pytest

from analysis.records import reader
from analysis.records.columns import STRENGTH
from analysis.trials import summary

PYTORCH = "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"
HEADER = (
    "framework,release,network,batch,devices,device_kind,threads,precision,tuning,data,status,reason,verified,parameters,processes,"
    "windows,steps,step_seconds,step_seconds_low,step_seconds_high,samples_per_second,loss_first,loss_last,flops_per_step,mfu,"
    "peak_memory_bytes,pcie_rx_bytes_per_step,pcie_tx_bytes_per_step,nvlink_bytes_per_step,energy_joules_per_step"
)


def row_of(made, folder, name=PYTORCH):
    return summary.summarise(reader.read(made.write(folder))).set_index("trial").loc[name]


def test_the_columns_and_their_order_are_stable(made, tmp_path):
    summary.rewrite(made.write(tmp_path))
    assert (tmp_path / "trials.csv").read_text().startswith(HEADER + ",")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaign.json", "processes.csv", "trials.csv", "windows.csv"]


def test_a_campaign_of_an_earlier_release_keeps_its_columns(made, tmp_path):
    summary.rewrite(made.write(tmp_path / "then"))
    then = (tmp_path / "then" / "trials.csv").read_text().splitlines()[0].split(",")
    made.prove_each_process()
    summary.rewrite(made.write(tmp_path / "now"))
    now = (tmp_path / "now" / "trials.csv").read_text().splitlines()[0].split(",")
    assert (then[-1], now) == ("copies_error", [*then, *STRENGTH])


def test_memory_that_the_driver_told_is_the_last_column_and_the_largest_of_the_ok_processes(made, tmp_path):
    summary.rewrite(made.write(tmp_path / "then"))
    then = (tmp_path / "then" / "trials.csv").read_text().splitlines()[0]
    made.put_on_a_gpu(pytorch=2**30)
    made.processes_of(PYTORCH)[4].update(status="failed", reason="crashed: signal 11", device_memory_bytes=2**40)
    made.processes_of(PYTORCH)[0]["device_memory_bytes"] = ""
    summary.rewrite(made.write(tmp_path / "now"))
    table = pd.read_csv(tmp_path / "now" / "trials.csv", dtype=str, keep_default_na=False)
    assert ",".join(table) == f"{then},device_memory_bytes"
    assert table["device_memory_bytes"].tolist() == [str(2**30 + 3 * 2**20), ""]
    assert (table["peak_memory_bytes"] != "").all()


def test_the_weakest_proof_of_the_ok_processes_counts(made, tmp_path):
    assert row_of(made, tmp_path / "then")[list(STRENGTH)].isna().all()
    made.prove_each_process()
    made.processes_of(PYTORCH)[1]["proof_rate_error"] = 0.05
    made.processes_of(PYTORCH)[2].update(proof_frozen_share=0.2, proof_gradient_error="inf")
    made.processes_of(PYTORCH)[3].update(status="failed", reason="crashed: signal 11", proof_rate_error=0.9)
    row = row_of(made, tmp_path / "now")
    assert row[list(STRENGTH)].tolist() == [0.05, 0.2, np.inf]
    assert row["verified"] == "yes"


def test_losses_that_differ_from_a_proven_peer_are_a_remark(made, tmp_path):
    made.prove_each_process()
    for window in made.windows_of(PYTORCH):
        window["loss"] *= 1.001
    row = row_of(made, tmp_path)
    assert row["verified"] == "yes"
    assert row["reason"] == ("losses do not agree with those of tensorflow 2.21.0 stock: loss 2.39239 for 2.39 at step 1: "
                             "0.1 % apart, 0.001 % allowed")


def test_whole_numbers_stay_whole_and_missing_ones_empty(made, tmp_path):
    made.add_trial("jax", "alexnet_cifar", 128, status="unsupported", reason="no wheel")
    summary.rewrite(made.write(tmp_path))
    table = pd.read_csv(tmp_path / "trials.csv", dtype=str, keep_default_na=False)
    assert table["parameters"].tolist() == ["85098"] * 3
    assert table["peak_memory_bytes"].iloc[2] == table["step_seconds"].iloc[2] == table["mfu"].iloc[0] == ""


def test_a_measured_row_is_derived_from_the_timed_windows(made, tmp_path):
    row = row_of(made, tmp_path)
    timed = [window for window in made.windows_of(PYTORCH) if window["window"] >= 0]
    medians = [np.median([window["step_seconds"] for window in timed if window["process"] == process]) for process in range(5)]
    assert row["step_seconds"] == np.median(medians)
    assert row["step_seconds_low"] < row["step_seconds"] < row["step_seconds_high"]
    assert row["samples_per_second"] == pytest.approx(128 / row["step_seconds"])
    assert (row["windows"], row["steps"], row["processes"]) == (25, sum(window["steps"] for window in timed), 5)
    assert (row["status"], row["verified"], row["reason"]) == ("ok", "yes", "")
    assert (row["loss_first"], row["gradient_error"]) == (pytest.approx(2.39, rel=1e-5), 6e-7)


def test_a_refused_trial_keeps_its_reason(made, tmp_path):
    name = made.add_trial("jax", "alexnet_cifar", 128, status="unsupported", reason="no wheel for it")
    row = row_of(made, tmp_path, name)
    assert (row["status"], row["reason"], row["verified"], row["processes"]) == ("unsupported", "no wheel for it", "no", 0)


def test_a_trial_that_was_not_reached_says_how_to_go_on(made, tmp_path):
    made.processes = [row for row in made.processes if row["trial"] != PYTORCH]
    row = row_of(made, tmp_path)
    assert row["status"] == "failed"
    assert row["reason"] == "not run yet: the campaign was interrupted; `dlbench run --resume` goes on"


@pytest.mark.parametrize(("statuses", "status", "reason"), [
    (["failed"] * 5, "failed", "out_of_memory: 9 GB"),
    (["unsupported"] * 5, "unsupported", "out_of_memory: 9 GB"),
    (["unsupported", "failed", *["unsupported"] * 3], "failed", "out_of_memory: 9 GB"),
    (["failed", "ok", "ok", "failed", "ok"], "ok", "2 of 5 processes failed: out_of_memory: 9 GB"),
])
def test_processes_that_fail_decide_the_status(made, tmp_path, statuses, status, reason):
    for row, own in zip(made.processes_of(PYTORCH), statuses, strict=True):
        row.update(status=own, check="same", reason="" if own == "ok" else "out_of_memory: 9 GB")
    row = row_of(made, tmp_path)
    assert (row["status"], row["reason"]) == (status, reason)


def test_failed_processes_are_not_timed(made, tmp_path):
    made.processes_of(PYTORCH)[4].update(status="failed", reason="crashed: signal 11")
    for window in made.windows_of(PYTORCH):
        if window["process"] == 4:
            window["step_seconds"] = 1e6
    row = row_of(made, tmp_path)
    assert row["step_seconds_high"] < 1 and row["windows"] == 20
    assert row["steps"] == sum(window["steps"] for window in made.windows_of(PYTORCH)
                               if window["window"] >= 0 and window["process"] < 4)


@pytest.mark.parametrize("loss", ["nan", "inf", ""])
def test_a_loss_that_is_not_finite_is_divergence(made, tmp_path, loss):
    for window in made.windows_of(PYTORCH):
        window["loss"] = loss if window["last_step"] > 4 else window["loss"]
    row = row_of(made, tmp_path)
    assert (row["status"], row["verified"]) == ("failed", "no")
    assert row["reason"] == f"diverged: the loss is {loss or 'nan'} after step 5"


def test_a_process_without_timed_windows_is_a_failure(made, tmp_path):
    made.windows = [row for row in made.windows if row["trial"] != PYTORCH or row["window"] < 0]
    assert row_of(made, tmp_path)["reason"] == "protocol: the process ended well but has no timed window"


def test_too_few_processes_leave_the_interval_empty_and_say_so(made, tmp_path):
    made.processes = [row for row in made.processes if row["process"] < 2]
    row = row_of(made, tmp_path)
    assert row["reason"] == "2 of 5 processes so far; no interval: 2 of at least 3 processes"
    assert pd.isna(row["step_seconds_low"]) and pd.isna(row["step_seconds_high"]) and row["verified"] == "yes"


def test_copies_that_differ_by_rounding_are_said_but_not_of_a_check_that_refused_them(made, tmp_path):
    for row, share in zip(made.processes_of(PYTORCH), (2e-7, "", 3.14e-7, "", 1e-7), strict=True):
        row["copies_error"] = share
    row = row_of(made, tmp_path / "same")
    assert (row["verified"], row["copies_error"]) == ("yes", 3.14e-7)
    assert row["reason"] == "the devices' copies of the parameters differ by rounding: at most 3.1e-07 of what training changed"
    made.processes_of(PYTORCH)[0].update(check="different", check_reason="apart", copies_error=0.3)
    row = row_of(made, tmp_path / "different")
    assert (row["verified"], row["copies_error"]) == ("no", 0.3)
    assert "apart; the devices' copies of the parameters differ by rounding: at most 3.1e-07 of what" in row["reason"]


def test_dropout_is_said(made, tmp_path):
    for trial in made.meta["trials"]:
        trial["dropout"] = True
    assert row_of(made, tmp_path)["reason"] == "dropout: losses compared at the first step only, within 25 %"
