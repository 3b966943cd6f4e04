"""Rows of a comparison: what is matched, what a ratio shows, and how often all verdicts together are false."""

import re

import numpy as np
import pandas as pd
import pytest

from analysis.compare import comparison, report, rules, verdicts
from analysis.compare.report import Comparison
from analysis.compare.rules import Rules
from analysis.compare.verdicts import (
    COLUMNS,
    FASTER,
    NO_DIFFERENCE,
    NOT_COMPARED,
    SLOWER,
    TOO_FEW,
    NotComparable,
)
from analysis.records import reader
from analysis.statistics import bootstrap
from analysis.statistics.bootstrap import Estimate


@pytest.fixture
def side(tmp_path):
    """Write records into a folder of a name and make a side of them, which bears it."""
    def make(made, name):
        made.meta["name"] = "as it was measured"
        return verdicts.recorded(reader.read(made.write(tmp_path / name)))
    return make


@pytest.fixture
def pair(draw_records, side):
    """Two campaigns of one framework and network; the second may be changed, and is slower by a factor."""
    def make(slower=1.0, change=lambda made: None, processes=5):
        sides = []
        for name, factor in (("old", 1.0), ("new", slower)):
            made = draw_records(networks=())
            made.add_trial("pytorch", "alexnet_cifar", 128, processes=processes, slower=factor)
            if name == "new":
                change(made)
            sides.append(side(made, name))
        return sides
    return make


def only(rows):
    assert list(rows.columns) == COLUMNS
    (row,) = rows.to_dict("records")
    return row


def test_a_slower_side_is_found_with_its_ratio_and_interval(pair):
    row = only(verdicts.compare(*pair(slower=1.2)))
    assert (row["verdict"], row["losses"], row["reason"]) == (SLOWER, "agree", "")
    assert row["ratio"] == pytest.approx(1.2) and 1 < row["ratio_low"] < 1.2 < row["ratio_high"]
    assert row["step_seconds_b"] == pytest.approx(1.2 * row["step_seconds_a"])
    assert only(verdicts.compare(*reversed(pair(slower=1.2))))["verdict"] == FASTER


def test_the_same_records_show_no_difference_and_what_could_have_been_seen(pair):
    row = only(verdicts.compare(*pair()))
    assert (row["verdict"], row["ratio"]) == (NO_DIFFERENCE, 1.0)
    assert row["visible"] == pytest.approx(max(1 / row["ratio_low"], row["ratio_high"]) - 1)


def test_sides_bear_the_names_that_their_folders_have_now(pair):
    assert [side.name for side in pair()] == ["old", "new"]


def test_two_processes_tell_nothing(pair):
    row = only(verdicts.compare(*pair(slower=2.0, processes=2)))
    assert (row["verdict"], row["ratio"], np.isnan(row["ratio_low"])) == (TOO_FEW, pytest.approx(2.0, rel=0.01), True)


def test_other_losses_are_not_compared(pair):
    def learn_otherwise(made):
        for row in made.windows:
            row["loss"] *= 1.01
    row = only(verdicts.compare(*pair(change=learn_otherwise)))
    assert (row["verdict"], np.isnan(row["ratio"])) == (NOT_COMPARED, True)
    assert row["reason"].startswith("loss ") and "at step 1" in row["reason"]


@pytest.mark.parametrize("dropout", [False, True])
def test_sides_with_proofs_of_their_own_are_compared_whatever_their_losses(draw_records, side, dropout):
    sides = []
    for name, factor in (("old", 1.0), ("new", 1.01)):
        made = draw_records(networks=())
        made.add_trial("pytorch", "alexnet_cifar", 128, processes=5)
        made.prove_each_process()
        made.meta["trials"][0]["dropout"] = dropout
        for row in made.windows:
            row["loss"] *= factor
        sides.append(side(made, name))
    found = verdicts.compare(*sides)
    assert found["verdict"].tolist() == [NO_DIFFERENCE]
    lines = report.lines(Comparison(found, *sides))
    told = [line for line in lines if "losses differ, although each side has its own proof: loss " in line]
    assert len(told) == (0 if dropout else 1)


def test_other_seeds_are_named_where_losses_differ(pair):
    def draw_anew(made):
        made.meta["suite"]["seed"] = 2
        for row in made.windows:
            row["loss"] *= 1.01
    assert only(verdicts.compare(*pair(change=draw_anew)))["reason"].endswith("(weights and batches of seeds None and 2)")


def test_a_side_that_is_not_verified_is_not_compared(pair):
    def differ(made):
        made.processes[0].update(check="different", check_reason="Nesterov momentum")
    row = only(verdicts.compare(*pair(change=differ)))
    assert (row["verdict"], row["reason"]) == (
        NOT_COMPARED, "B: not verified: different from the reference: Nesterov momentum")


def test_a_workload_of_one_side_is_a_row_that_says_so(draw_records, side):
    small, large = draw_records(networks=("alexnet_cifar",)), draw_records(networks=("alexnet_cifar", "resnet56"))
    rows = verdicts.compare(side(small, "small"), side(large, "large"))
    assert rows["framework"].tolist() == ["pytorch", "tensorflow"] * 2
    assert rows["verdict"].tolist() == [NO_DIFFERENCE] * 2 + [NOT_COMPARED] * 2
    assert rows["reason"].tolist() == [""] * 2 + ["A: small has no such workload"] * 2


def test_two_releases_on_one_side_are_refused(draw_records, side):
    made = draw_records(networks=("alexnet_cifar",))
    made.add_trial("pytorch", "alexnet_cifar", 128, release="2.12.0")
    both = side(made, "both")
    with pytest.raises(NotComparable, match=r"is there twice .*: compare one release of each framework at a time"):
        verdicts.compare(both, both)


def add_undivided(made):
    """Two batches of one size on each of two devices, of which one does not divide."""
    made.add_trial("pytorch", "alexnet_cifar", 31, devices=2, global_batch=62, strategy="ddp")
    made.add_trial("pytorch", "alexnet_cifar", 31, devices=2, global_batch=63, strategy="ddp", status="unsupported",
                   reason="a global batch of 63 does not divide into 2 equal parts")


def test_batches_that_differ_only_over_all_devices_are_two_workloads(draw_records, side):
    made = draw_records(networks=())
    add_undivided(made)
    both = side(made, "both")
    rows = verdicts.compare(both, both)
    assert list(rows.columns) == [*COLUMNS, "global_batch"]
    assert rows[["global_batch", "verdict", "reason"]].to_numpy().tolist() == [
        [62, NO_DIFFERENCE, ""],
        [63, NOT_COMPARED, "A: unsupported: a global batch of 63 does not divide into 2 equal parts; "
                           "B: unsupported: a global batch of 63 does not divide into 2 equal parts"]]
    assert comparison.labels(rows) == ["alexnet_cifar, batch 31, global batch 62", "alexnet_cifar, batch 31, global batch 63"]


def test_a_campaign_on_one_device_is_matched_with_one_on_several(draw_records, side):
    old, new = draw_records(networks=("alexnet_cifar",)), draw_records(networks=("alexnet_cifar",))
    add_undivided(new)
    rows = verdicts.compare(side(old, "old"), side(new, "new"))
    assert rows["verdict"].tolist() == [NO_DIFFERENCE] * 2 + [NOT_COMPARED] * 2


@pytest.mark.parametrize("order", [("2.12.0", "2.13.0"), ("2.13.0", "2.12.0")])
def test_what_was_refused_does_not_block_another_row_of_its_workload_and_is_listed(draw_records, side, order):
    made, other = draw_records(networks=()), draw_records(networks=())
    for release in order:
        refused = {"status": "unsupported", "reason": "no such container"} if release == "2.12.0" else {}
        made.add_trial("pytorch", "alexnet_cifar", 128, release=release, **refused)
    other.add_trial("pytorch", "alexnet_cifar", 128)
    rows = verdicts.compare(side(made, "both"), side(other, "one"))
    assert rows["trial_a"].tolist() == [f"pytorch-{release}-alexnet_cifar-128-fp32-stock" for release in ("2.13.0", "2.12.0")]
    assert rows["verdict"].tolist() == [NO_DIFFERENCE, NOT_COMPARED]
    assert rows["reason"].tolist() == ["", "A: pytorch-2.12.0-alexnet_cifar-128-fp32-stock: unsupported: no such container"]


@pytest.fixture
def on_devices(draw_records, side):
    """A side with a row of each of these strategies on each number of devices."""
    def make(name, strategies, devices=(2,), change=lambda made: None):
        made = draw_records(networks=())
        for several in devices:
            for strategy in strategies if several > 1 else [""]:
                made.add_trial("pytorch", "alexnet_cifar", 64, devices=several, strategy=strategy, release=f"2.13.{name}")
        change(made)
        return side(made, name)
    return make


def test_rows_are_told_apart_by_strategy_and_devices_are_called_so(on_devices):
    a, b = on_devices("1", ["ddp", "ring"], (1, 2)), on_devices("2", ["ddp", "ring"], (1, 2))
    rows = verdicts.compare(a, b)
    assert comparison.labels(rows) == [
        "alexnet_cifar, batch 64, 1 device", "alexnet_cifar, batch 64, 2 devices, ddp", "alexnet_cifar, batch 64, 2 devices, ring"]
    assert report.answer(Comparison(rows, a, b))["workload"].tolist() == comparison.labels(rows)


def test_one_strategy_of_both_sides_is_not_named_and_two_are(on_devices):
    rows = verdicts.compare(on_devices("1", ["ring"]), on_devices("2", ["ring"]))
    assert comparison.labels(rows) == ["alexnet_cifar, batch 64"]
    a, b = on_devices("1", ["ddp"]), on_devices("2", ["ring"])
    rows = verdicts.compare(a, b)
    assert rows[["strategy_a", "strategy_b", "verdict"]].to_numpy().tolist() == [["ddp", "ring", NO_DIFFERENCE]]
    assert comparison.labels(rows) == ["alexnet_cifar, batch 64, ddp in A, ring in B"]
    assert report.lines(Comparison(rows, a, b, Rules(0.0)))[-1].startswith(
        "A regression beyond 0 % cannot be excluded: alexnet_cifar, batch 64, ddp in A, ring in B (")


def test_a_strategy_of_one_side_only_is_not_said_to_be_in_the_other(on_devices):
    rows = verdicts.compare(on_devices("1", ["ddp", "ring"]), on_devices("2", ["ring"]))
    assert comparison.labels(rows) == ["alexnet_cifar, batch 64, ddp", "alexnet_cifar, batch 64, ring"]


@pytest.mark.parametrize(("strategies", "reason"), [
    (("ddp", "one_bit"), "one_bit sends less than ddp, so their losses are not expected to agree"),
    (("one_bit", "ddp"), "one_bit sends less than ddp, so their losses are not expected to agree"),
    (("one_bit", "power_sgd"),
     "one_bit and power_sgd leave out different parts of the gradients, so their losses are not expected to agree"),
])
def test_a_strategy_that_loses_is_compared_with_no_other(on_devices, strategies, reason):
    a, b = (on_devices(name, [strategy]) for name, strategy in zip("12", strategies, strict=True))
    (row,) = verdicts.compare(a, b).to_dict("records")
    assert (row["verdict"], row["reason"], row["losses"]) == (NOT_COMPARED, reason, "")
    assert report.lines(Comparison(verdicts.compare(a, b), a, b))[-1] == (
        f"Not compared: alexnet_cifar, batch 64, {strategies[0]} in A, {strategies[1]} in B: {reason}")


def test_a_strategy_that_loses_is_compared_with_itself(on_devices):
    (row,) = verdicts.compare(on_devices("1", ["one_bit"]), on_devices("2", ["one_bit"])).to_dict("records")
    assert (row["verdict"], row["losses"]) == (NO_DIFFERENCE, "agree")


def test_a_live_comparison_as_one_side_is_refused_with_what_to_do(draw_records, side):
    made = draw_records(networks=())
    for letter in "AB":
        made.add_trial("pytorch", "alexnet_cifar", 128, side=letter)
    both = side(made, "both")
    with pytest.raises(NotComparable, match=r"twice .*: it is a live comparison, which holds both sides: name its folder alone"):
        verdicts.compare(both, both)


@pytest.mark.parametrize(("low", "high", "word"), [(1.01, 1.2, SLOWER), (0.8, 0.99, FASTER), (0.9, 1.1, NO_DIFFERENCE)])
def test_a_verdict_is_whether_the_interval_excludes_1(low, high, word):
    assert verdicts.verdict(Estimate((low + high) / 2, low, high, 5)) == word


def test_a_regression_is_shown_only_by_a_whole_interval():
    rows = pd.DataFrame({"network": "fcn5", "framework_b": "jax", "release_b": "1.0",
                         "ratio_low": [1.04, 1.01, 0.9, np.nan], "ratio_high": [1.2, 1.2, 1.02, np.nan]})
    assert rules.judge(rows, Rules(0.03))["regression"].tolist() == ["shown", "possible", "", "possible"]
    assert rules.judge(rows, Rules())["regression"].tolist() == [""] * 4


def test_all_verdicts_of_a_comparison_hold_together(monkeypatch):
    """A family of three workloads, process effects ten times the windows' noise. Found 0.057 false alarms with four."""
    monkeypatch.setattr(bootstrap, "DRAWS", 1500)
    rng = np.random.default_rng(3)

    def times():
        return list(np.exp(0.1 * rng.standard_normal((5, 1)) + 0.01 * rng.standard_normal((5, 8))))

    def alarms(confidence, families=150):
        return np.mean([any(not bootstrap.ratio(times(), times(), confidence=confidence).contains(1) for _ in range(3))
                        for _ in range(families)])

    assert verdicts.family_confidence(3) == pytest.approx(1 - 0.05 / 3)
    assert alarms(verdicts.family_confidence(3)) <= 0.09
    assert alarms(0.95) > 0.09  # the negative control: rows that are not corrected for each other


def test_a_page_needs_no_other_file_and_says_what_was_compared(pair, tmp_path):
    a, b = pair(slower=1.2)
    comparison = Comparison(verdicts.compare(a, b), a, b, Rules(0.03))
    paths = report.write(comparison, tmp_path / "out")
    assert sorted(path.name for path in paths) == ["compare.csv", "compare.html", "compare.md", "ratios.png", "ratios.svg"]
    page = (tmp_path / "out" / "compare.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "<h1>new against old</h1>" in page and "<svg" in page and "prefers-color-scheme: dark" in page
    text = (tmp_path / "out" / "compare.md").read_text()
    assert re.search(r"\n\| alexnet_cifar, batch 128 \| 6[\d.]+ \| 7[\d.]+ \| 1\.\d{3} \(.*\) \| slower \| .* \| agree \|\n", text)
    assert "Regression beyond 3 %: alexnet_cifar, batch 128 (1." in text
    assert pd.read_csv(tmp_path / "out" / "compare.csv")["verdict"].tolist() == [SLOWER]


def test_a_verdict_of_no_difference_says_what_could_have_been_seen(pair):
    a, b = pair()
    comparison = Comparison(verdicts.compare(a, b), a, b, Rules(0.03))
    (cells,) = report.answer(comparison).to_dict("records")
    assert re.fullmatch(r"no difference seen, could have seen \d[\d.]* %", cells["verdict"])
    assert cells["losses"] == "agree"
    assert report.lines(comparison)[0] == "B against A: 1 no difference seen."
    assert report.lines(comparison)[3].startswith("A regression beyond 3 % cannot be excluded: ")


@pytest.mark.parametrize("proves_each", [False, True])
def test_a_repeat_keeps_its_own_proofs_and_takes_those_that_were_made_once_for_all(draw_records, tmp_path, proves_each):
    made = draw_records(networks=())
    name = made.add_trial("jax", "lstm32", 16, processes=4)
    made.meta["comparison"], made.meta["suite"]["processes"] = {"a": "x", "b": "y", "repeats": 2}, 4
    if proves_each:
        made.prove_each_process()
        made.processes_of(name)[2].update(check="different", check_reason="nothing was trained")
    repeats = verdicts.repeats_of(reader.read(made.write(tmp_path)))
    checks = [each.processes["check"].tolist() for each in repeats]
    assert checks == ([["same", "same"], ["different", "same"]] if proves_each else [["same", ""]] * 2)


def test_two_frameworks_compare_within_a_tier_and_one_across_its_tiers(draw_records, side):
    def of(framework, tuning):
        made = draw_records(networks=())
        made.add_trial(framework, "alexnet_cifar", 128, tuning=tuning)
        return side(made, f"{framework}-{tuning}")
    stock = of("pytorch", "stock")
    assert only(verdicts.compare(stock, of("pytorch", "tuned")))["verdict"] == NO_DIFFERENCE
    row = only(verdicts.compare(stock, of("tensorflow", "tuned")))
    assert (row["verdict"], row["reason"]) == (
        NOT_COMPARED, "A is stock and B is tuned: two frameworks compare within a tier only")
