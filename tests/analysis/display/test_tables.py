"""Tables for people: text, three digits, a unit in the heading, and nothing ranked that is not proved."""

import re

import numpy as np
import pandas as pd
import pytest

from analysis.display import ranking
from analysis.display.numbers import TIME_UNITS, best_unit, number, ratio, ratio_span
from analysis.records import reader
from analysis.report import tables
from analysis.trials import summary

PYTORCH = "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"
TENSORFLOW = "tensorflow-2.21.0-alexnet_cifar-128-fp32-stock"


def read(made, folder):
    campaign = reader.read(made.write(folder))
    rows = summary.summarise(campaign)
    return campaign, rows, ranking.relative(campaign, rows)


@pytest.mark.parametrize(("value", "text"), [
    (0.012345, "0.0123"), (1.0, "1.00"), (9.999, "10.0"), (12.345, "12.3"), (99.96, "100"), (1234.5, "1,230"), (0, "0"),
    (float("nan"), ""), (pd.NA, ""),
])
def test_numbers_have_three_significant_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("seconds", "unit"), [([0.0002, 0.0003], "us"), ([0.002, 3.0, 0.01], "ms"), ([2.0], "s"), ([], "s")])
def test_the_unit_fits_the_middle_value(seconds, unit):
    assert best_unit(seconds, TIME_UNITS)[0] == unit


def test_the_answer_names_the_faster_framework_with_an_interval(made, tmp_path):
    _, rows, speeds = read(made, tmp_path)
    answer = tables.answer(rows, speeds)
    assert list(answer.columns) == ["network", "batch", "pytorch (ms)", "tensorflow (ms)", "verdict"]
    (row,) = answer.to_dict("records")
    assert (row["network"], row["batch"]) == ("alexnet_cifar", 128)
    assert row["verdict"].startswith("tensorflow 1.1") and row["verdict"].endswith(") times as fast as pytorch")
    assert ranking.throughout(rows) == "1 device, cpu, 2 threads, fp32, stock tier, batches already on the device"


@pytest.mark.parametrize(("found", "words"), [
    ((1.0034, 1.0011, 1.0058), "1.003 (1.001 to 1.006)"), ((1.046, 1.0421, 1.154), "1.046 (1.042 to 1.154)"),
    ((1.1234, 1.0734, 1.35), "1.12 (1.07 to 1.35)"), ((12.34, 11.1, 13.0), "12.3 (11.1 to 13.0)"),
])
def test_a_ratio_near_1_and_its_interval_have_three_decimals(found, words):
    assert ratio(*found) == words


@pytest.mark.parametrize(("found", "words"), [((0.9962, 1.0001), "0.996 to 1.000"), ((0.884, 1.06), "0.884 to 1.06")])
def test_an_interval_near_1_has_three_decimals(found, words):
    assert ratio_span(*found) == words


def test_equal_frameworks_are_not_ranked(draw_records, tmp_path):
    _, rows, speeds = read(draw_records(networks=("fcn5",)), tmp_path)
    verdicts = tables.answer(rows, speeds)["verdict"]
    for verdict in verdicts:
        found = re.fullmatch(r"no difference seen: (\w+) (\S+) to (\S+) times as fast as (\w+)", verdict)
        assert {found[1], found[4]} == {"pytorch", "tensorflow"}
        assert float(found[2]) <= 1 <= float(found[3])
    assert set(speeds["verdict"]) == {ranking.FASTEST, ranking.NO_DIFFERENCE}


@pytest.mark.parametrize(("count", "verdict"), [(2, ranking.SLOWER), (3, ranking.NO_DIFFERENCE)])
def test_of_more_rows_each_must_differ_more_clearly(made, tmp_path, count, verdict):
    """Two of 25 pairs of processes are in the other order: enough for one comparison, too many for one of three."""
    campaign, rows, _ = read(made, tmp_path)
    times = {"a": [1.0, 1.01, 1.02, 1.03, 1.4], "b": [1.38, 1.39, 1.5, 1.51, 1.52], "c": [2.0, 2.1, 2.2, 2.3, 2.4]}
    names = list(times)[:count]
    rows = pd.concat([rows.iloc[:1].assign(framework=name, trial=name, step_seconds=times[name][2]) for name in names])
    speeds = ranking.relative(campaign, rows, times=lambda _, name: [np.full(8, each) for each in times[name]])
    assert speeds["verdict"].tolist() == [ranking.FASTEST, verdict, ranking.SLOWER][:count]
    assert (speeds["relative_speed_high"].iloc[1] == 1.0) == (verdict == ranking.NO_DIFFERENCE)


def test_the_strength_of_a_proof_is_listed_in_percent(made, tmp_path):
    made.prove_each_process(rate=0.004, frozen=0, gradient=0.0612)
    for row in made.processes_of(TENSORFLOW):
        row.update(proof_rate_error="inf", proof_frozen_share=1, proof_gradient_error=1.5)
    campaign, rows, speeds = read(made, tmp_path)
    assert tables.proof(rows, campaign.processes).drop(columns=["network", "batch"]).to_dict("records") == [
        {"framework": "pytorch", "learning rate (%)": "0.400", "scale of gradients (%)": "6.12", "frozen parameters (%)": "0"},
        {"framework": "tensorflow", "learning rate (%)": "not seen", "scale of gradients (%)": "not seen",
         "frozen parameters (%)": "100"}]
    assert tables.refused(rows)["reason"].tolist() == ["unproven: the proof could not have seen a runner that trains nothing"]
    assert speeds["trial"].tolist() == [PYTORCH]


def test_the_largest_error_of_a_proof_is_listed_as_a_share_of_its_limit(made, tmp_path):
    made.prove_each_process()
    for row in made.processes_of(PYTORCH):
        row.update(proof_limit_share=0.1 * (1 + row["process"]))
    campaign, rows, _ = read(made, tmp_path)
    largest = 10 * campaign.processes["process"].max() + 10
    assert tables.proof(rows, campaign.processes)["largest error (% of its limit)"].tolist() == [f"{largest:.1f}", ""]


def test_the_longer_proof_of_a_process_is_listed_as_a_share_of_its_time(made, tmp_path):
    made.prove_each_process()
    for row in made.processes_of(TENSORFLOW):
        row.update(proof_seconds=3, second_proof_seconds=1, process_seconds=20 * (1 + row["process"]))
    for row in made.processes_of(PYTORCH):
        row.update(proof_seconds=3, second_proof_seconds=1.6, process_seconds=20)
    campaign, rows, _ = read(made, tmp_path)
    shares = tables.proof(rows, campaign.processes)["one proof (% of the process's time)"]
    assert shares.tolist() == ["8.00", "3.33"]


def test_an_unverified_row_is_shown_and_not_ranked_however_fast(made, tmp_path):
    made.processes_of(TENSORFLOW)[0].update(check="different", check_reason="ReLU on the logits")
    _, rows, speeds = read(made, tmp_path)
    (row,) = tables.answer(rows, speeds).to_dict("records")
    assert row["tensorflow (ms)"].endswith("not verified")
    assert row["verdict"] == "only pytorch"
    assert speeds["trial"].tolist() == [PYTORCH]
    assert tables.times(rows, speeds)["relative speed"].tolist() == ["1, the fastest", "not ranked"]
    assert tables.refused(rows).to_dict("records") == [{
        "network": "alexnet_cifar", "batch": 128, "framework": "tensorflow", "verdict": "not verified",
        "reason": "different from the reference: ReLU on the logits",
    }]


def test_two_processes_are_too_few_to_tell(made, tmp_path):
    made.processes = [row for row in made.processes if row["process"] < 2]
    _, rows, speeds = read(made, tmp_path)
    assert tables.answer(rows, speeds)["verdict"].tolist() == ["too few processes to tell"]


@pytest.mark.parametrize(("field", "value"), [("tuning", "tuned"), ("precision", "tf32"), ("threads", 1), ("data", "host")])
def test_what_varies_stands_in_a_column_and_is_never_compared(made, tmp_path, field, value):
    made.trial(TENSORFLOW)[field] = value
    _, rows, speeds = read(made, tmp_path)
    assert set(speeds["verdict"]) == {ranking.FASTEST}
    for table in (tables.answer(rows, speeds), tables.times(rows, speeds), tables.memory(rows)):
        assert field in table.columns


def test_two_releases_of_a_framework_are_two_contestants(made, tmp_path):
    made.add_trial("pytorch", "alexnet_cifar", 128, release="2.12.0", slower=1.5)
    _, _, speeds = read(made, tmp_path)
    assert speeds["contestant"].tolist() == ["tensorflow", "pytorch 2.13.0", "pytorch 2.12.0"]


def test_a_batch_that_its_devices_cannot_share_hides_no_measured_row(draw_records, tmp_path):
    """As 62 and 63 samples on two devices, each of which has 31 by whole numbers."""
    made = draw_records(networks=())
    made.add_trial("pytorch", "fcn5", 31, devices=2, global_batch=62)
    refused = {"status": "unsupported", "reason": "63 samples on 2 devices"}
    made.add_trial("pytorch", "fcn5", 31, devices=2, global_batch=63, **refused)
    _, rows, speeds = read(made, tmp_path)
    (cell,) = tables.answer(rows, speeds)["pytorch (ms)"]
    assert cell not in ("", "unsupported")
    assert tables.refused(rows)[["batch", "reason"]].to_numpy().tolist() == [["63 over 2", refused["reason"]]]
    assert len(tables.answer(rows[rows["status"] != "ok"], speeds)) == 1  # a campaign of refused rows shows them


def test_refused_and_failed_trials_are_listed_with_reasons(smoke, tmp_path):
    _, rows, speeds = read(smoke, tmp_path)
    assert tables.refused(rows)[["framework", "network", "verdict"]].values.tolist() == [
        ["pytorch", "resnet56", "unsupported"], ["tensorflow", "lstm32", "failed"],
    ]
    assert tables.remarks(rows)["remark"].tolist() == ["1 of 5 processes failed: timed_out: no answer for 600 s"]
    assert "unsupported" in tables.answer(rows, speeds)["pytorch (ms)"].tolist()


def test_what_all_ranked_rows_share_is_said_once(made, tmp_path):
    _, rows, _ = read(made, tmp_path)
    rows = rows.assign(reason=["resumed; 1 of 2 windows throttled", "resumed"])
    assert tables.remarks(rows)[["network", "framework", "remark"]].to_numpy().tolist() == [
        ["all ranked rows", "", "resumed"], ["alexnet_cifar", "pytorch", "1 of 2 windows throttled"]]
    assert tables.remarks(rows[:1])["remark"].tolist() == ["resumed; 1 of 2 windows throttled"]
    assert tables.remarks(rows.assign(verified="no")).empty


def test_many_contestants_are_listed_from_the_fastest_down(smoke, tmp_path):
    _, rows, speeds = read(smoke, tmp_path)
    listed = tables.listing(rows, speeds)
    assert len(listed) == len(rows)
    starts = listed.index[listed["network"] != ""].tolist()
    groups = [group for _, group in rows.groupby(ranking.GROUP, sort=False, dropna=False)]
    assert [listed["network"][start] for start in starts] == [group["network"].iloc[0] for group in groups]
    first = groups[0][groups[0]["verified"] == "yes"].sort_values("step_seconds")
    assert listed["framework"].tolist()[: len(first)] == first["framework"].tolist()
    assert listed["relative speed"][0] == "1, the fastest"


def test_a_framework_that_chooses_its_threads_names_none():
    assert (ranking.one_setting("threads", 0), ranking.one_setting("threads", 2)) == ("", "2 threads")
