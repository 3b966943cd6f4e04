"""Calls of two sides in inference: a change of the slowest 1 % has a verdict of its own, and all verdicts hold together."""

import gzip
import itertools
import json
import re
import shutil
from datetime import date

import numpy as np
import pandas as pd
import pytest

from analysis.compare import calls, comparison, outcome, report, track, verdicts
from analysis.compare.calls import TOO_FEW_CALLS
from analysis.compare.releases import read_range
from analysis.compare.report import Comparison
from analysis.compare.rules import Acknowledged, Rules
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, NOT_COMPARED, SLOWER, TOO_FEW
from analysis.records import reader
from analysis.site import findings, grids
from analysis.statistics import bootstrap
from tests.recorded import RESULTS

RECORDED = RESULTS / "cpu-inference-resnet50-2026-11-25"
VERDICTS = ["verdict", "latency_p50_verdict", "latency_p99_verdict"]


def as_they_are(times):
    return times


def slowest(factor, share=0.015):
    """Make the slowest calls of a process so many times as long."""
    def change(times):
        kth = np.sort(times)[-round(share * len(times))]
        return np.where(times >= kth, factor * times, times)
    return change


def draw(seed, count, spread=0.01):
    """Calls of a process with a long tail, a process apart from the others by `spread`."""
    rng = np.random.default_rng(seed)
    return 2e-3 * np.exp(spread * rng.standard_normal()) * (1 + 0.05 * rng.exponential(size=count))


@pytest.fixture
def campaign(draw_records, tmp_path):
    """Write a campaign of one engine: each process's calls are drawn, and then changed.

    With `sides` it is a live comparison: releases by side, of which B's calls are changed.
    """
    def make(name, change=as_they_are, count=1000, processes=5, networks=("resnet56",), first=0, sides=None):
        made = draw_records(networks=())
        lines = ["trial,process,window,first,nanoseconds"]
        of_sides = [{"side": side, "release": release} for side, release in (sides or {}).items()] or [{}]
        if sides:
            made.meta.update(comparison={"repeats": 1, **{side.lower(): f"pytorch=={release}" for side, release in sides.items()}})
        for place, (network, of_side) in enumerate(itertools.product(networks, of_sides)):
            trial = made.add_trial("pytorch", network, 16, mode="inference", processes=processes, **of_side)
            for process in range(processes):
                mine = draw([first, place, process], count)
                mine = mine if of_side.get("side") == "A" else change(mine)
                windows = [row for row in made.windows_of(trial) if row["process"] == process]
                for row in windows:
                    row.update(step_seconds=mine.mean(), seconds=mine.mean() * row["steps"])
                timed = [row for row in windows if row["window"] >= 0]
                for row, own in zip(timed, np.array_split(mine, len(timed)), strict=True):
                    row.update(step_seconds=own.mean(), seconds=own.mean() * row["steps"])
                    cell = " ".join(map(str, (1e9 * own).round().astype(int)))
                    lines.append(f"{trial},{process},{row['window']},0,{cell}")
        for row in made.windows:
            row["loss"] = "nan"
        made.prove_each_process()
        folder = made.write(tmp_path / name)
        (folder / "latencies.csv.gz").write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
        return folder
    return make


@pytest.fixture
def compared(campaign):
    """Compare two campaigns that drew their calls apart, the second one's changed."""
    def make(change=as_they_are, rules=None, **options):
        folders = campaign("old", **options), campaign("new", change, first=7, **options)
        sides = [verdicts.recorded(reader.read(folder)) for folder in folders]
        return Comparison(verdicts.compare(*sides), *sides, rules or Rules())
    return make


def test_a_timeline_has_quantiles_of_calls_and_names_the_release_whose_slowest_calls_became_slower(campaign, tmp_path):
    changes = {"2.10.0": as_they_are, "2.11.0": slowest(1.5), "2.12.0": slowest(1.5)}
    for first, (release, change) in enumerate(changes.items()):
        campaign(f"t/{release}", change, first=first, sides={"A": "2.9.0", "B": release}, processes=8)
    timeline = track.read(tmp_path / "t")
    assert timeline.rows["workload"].unique().tolist() == ["resnet56, batch 16", "resnet56, batch 16, p50", "resnet56, batch 16, p99"]
    (row,) = timeline.regressions.to_dict("records")
    assert (row["workload"], row["release"], row["before"]) == ("resnet56, batch 16, p99", "2.11.0", "2.10.0")
    assert row["change_low"] <= 1.5 <= row["change_high"]
    track.write(timeline, tmp_path / "t")
    text = (tmp_path / "t" / "track.md").read_text()
    assert "time per call over that of the base" in text and "p50 and p99 have timelines of their own" in text


def test_a_timeline_says_where_too_few_calls_show_a_quantile(campaign, tmp_path):
    for first, (release, count) in enumerate({"2.10.0": 1000, "2.11.0": 200}.items()):
        campaign(f"t/{release}", first=first, sides={"A": "2.9.0", "B": release}, count=count)
    rows = track.read(tmp_path / "t").rows
    refused = rows[rows["verdict"] == NOT_COMPARED]
    assert refused[["workload", "release", "reason"]].to_numpy().tolist() == [["resnet56, batch 16, p99", "2.11.0", TOO_FEW_CALLS]]
    assert rows[rows["workload"].str.endswith("p99")]["release"].tolist() == ["2.9.0", "2.10.0", "2.11.0"]


@pytest.mark.parametrize(("change", "found"), [
    (as_they_are, [NO_DIFFERENCE] * 3),
    (slowest(1.4), [NO_DIFFERENCE, NO_DIFFERENCE, SLOWER]),
    (lambda times: np.minimum(times, np.quantile(times, 0.9)), [NO_DIFFERENCE, NO_DIFFERENCE, FASTER]),
    (lambda times: 1.4 * times, [SLOWER] * 3),
])
def test_a_change_of_the_slowest_calls_is_found_in_p99_alone(compared, change, found):
    (row,) = compared(change).rows.to_dict("records")
    assert [row[name] for name in VERDICTS] == found
    for each in ("p50", "p99"):
        ratio = row[f"latency_{each}_seconds_b"] / row[f"latency_{each}_seconds_a"]
        assert row[f"latency_{each}_ratio"] == pytest.approx(ratio)
        assert row[f"latency_{each}_ratio_low"] <= ratio <= row[f"latency_{each}_ratio_high"]


@pytest.mark.parametrize(("share", "found"), [(0.02, SLOWER), (0.005, NO_DIFFERENCE)])
def test_p99_tells_of_two_per_cent_of_the_calls_and_not_of_half_a_per_cent(compared, share, found):
    assert compared(slowest(1.4, share)).rows["latency_p99_verdict"].tolist() == [found]


def test_recorded_calls_of_engines_show_what_was_planted_in_one_of_them(tmp_path):
    """The records of ResNet-50 on a CPU, with the slowest 1.5 % of the calls of ONNX Runtime 1.5 times as long."""
    planted = shutil.copytree(RECORDED, tmp_path / "planted")
    table = pd.read_csv(planted / "latencies.csv.gz", dtype=str)
    chosen = table["trial"].str.startswith("onnxruntime") & table["trial"].str.contains("fp32")
    for _, rows in table[chosen].groupby("process"):
        texts = rows["nanoseconds"].str.split()
        times = slowest(1.5)(np.concatenate(texts.to_list()).astype(float))
        parts = np.split(times.round().astype(int), np.cumsum(texts.map(len))[:-1])
        table.loc[rows.index, "nanoseconds"] = [" ".join(map(str, part)) for part in parts]
    table.to_csv(planted / "latencies.csv.gz", index=False)
    sides = [verdicts.recorded(reader.read(folder)) for folder in (RECORDED, planted)]
    rows = verdicts.compare(*sides)
    able = rows[rows["verdict"] != NOT_COMPARED].set_index(["framework", "precision"])
    assert len(able) == 7
    assert able["verdict"].unique().tolist() == able["latency_p50_verdict"].unique().tolist() == [NO_DIFFERENCE]
    slower = able.index[able["latency_p99_verdict"] == SLOWER].tolist()
    assert slower == [("onnxruntime", "fp32")]
    assert (able["latency_p99_verdict"] == NO_DIFFERENCE).sum() == 6


def test_too_few_calls_or_processes_leave_a_quantile_without_a_verdict(compared):
    found = compared(count=298)
    (row,) = found.rows.to_dict("records")
    assert [row[name] for name in VERDICTS] == [NO_DIFFERENCE, NO_DIFFERENCE, TOO_FEW_CALLS]
    assert np.isnan(row["latency_p99_ratio"]) and calls.measures(found.rows)["measure"].tolist() == ["", "p50"]
    assert report.answer(found)["p99 of B / A"].tolist() == [TOO_FEW_CALLS]
    assert comparison.headline(found).endswith("p99 of calls: 1 too few calls to tell.")
    assert compared(processes=2).rows[VERDICTS].to_numpy().tolist() == [[TOO_FEW] * 3]


def test_every_verdict_counts_in_the_confidence_of_each(compared, monkeypatch):
    asked = []
    ratio = bootstrap.ratio
    monkeypatch.setattr(bootstrap, "ratio", lambda *times, confidence: asked.append(confidence) or ratio(*times))
    found = compared(networks=("resnet56", "fcn5"))
    assert asked == [pytest.approx(1 - 0.05 / 6)] * 6
    assert comparison.notes(found)[0].startswith("The 6 intervals hold together with 95 % confidence; each is a 99.17 % interval.")


def test_equal_engines_with_bursts_of_slow_calls_raise_no_more_alarms_than_stated(monkeypatch):
    """120 comparisons of calls that slow down in bursts, in some processes more than in others, each with three verdicts."""
    monkeypatch.setattr(bootstrap, "DRAWS", 1000)
    rng = np.random.default_rng(5)

    def process():
        times = np.exp(0.02 * rng.standard_normal()) * (1 + 0.02 * rng.exponential(size=1024))
        for start in rng.integers(1024 - 16, size=rng.poisson(1)):
            times[start:start + 16] *= 1 + rng.exponential()
        return times

    def values():
        whole = [process() for _ in range(5)]
        return [[np.array([times.mean()]) for times in whole],
                *([np.array([bootstrap.quantile([times], share).value]) for times in whole] for share in (0.5, 0.99))]

    def alarms(confidence, pairs):
        return np.mean([any(not bootstrap.ratio(ours, theirs, confidence=confidence).contains(1)
                            for ours, theirs in zip(*pair, strict=True)) for pair in pairs])

    pairs = [(values(), values()) for _ in range(120)]
    assert alarms(verdicts.family_confidence(3), pairs) <= 0.09


def test_a_regression_of_the_slowest_calls_alone_fails_with_its_name(compared):
    found = compared(slowest(1.5), Rules(0.1))
    assert outcome.outcome_of(found) == outcome.REGRESSION
    assert found.measured["regression"].tolist() == ["", "", "shown"]
    (line,) = [line for line in report.lines(found) if line.startswith("Regression")]
    assert re.fullmatch(r"Regression beyond 10 %: resnet56, batch 16, p99 \(1\.\d+ \(1\.\d+ to 1\.\d+\)\)\.", line)
    (workload,) = json.loads(outcome.as_json(found))["workloads"]
    assert (workload["regression"], workload["latency_p99_verdict"]) == ("shown", SLOWER)
    stall = Acknowledged("pytorch", read_range("2.13.0"), "resnet56", "a known stall", date(9999, 1, 1))
    known = Comparison(found.rows, found.a, found.b, Rules(0.1, {}, (stall,)))
    assert outcome.outcome_of(known) == outcome.FINE
    assert report.answer(known)["verdict"].str.startswith("no difference seen, could").all()


def test_the_page_the_site_and_the_finding_tell_each_quantile(compared, tmp_path):
    found = compared(slowest(1.5))
    report.write(found, tmp_path / "out")
    text = (tmp_path / "out" / "compare.md").read_text()
    assert re.search(r"\| no difference seen, could have seen [\d.]+ % \| 1?[\d.]+ \(.*\): no difference seen, could .* \| 1\.\d+ \(.*\): slower \|",
                     text)
    assert "The ratio is B's time per call over A's" in text and "mini-batch" not in text
    assert "loss" not in text and "losses" not in report.answer(found)
    assert "p99 of calls: 1 slower" in text and "Memory is the peak while running." in text
    assert re.fullmatch(r"resnet56 p99 1\.\d+ times as long \(.*\); no difference seen in 1 of 1 workloads\.",
                        findings.of_comparison(tmp_path / "out"))
    grid = grids.comparison(pd.read_csv(tmp_path / "out" / "compare.csv", dtype=str, keep_default_na=False), {})
    cells = dict(zip(grid.columns, (cell.text for cell in grid.rows[0]), strict=True))
    assert cells["p99 of B / A"].endswith("): slower") and cells["p50 of B / A"].endswith("): no difference seen")


def test_a_calibration_counts_the_alarms_of_each_quantile(compared):
    found = compared(slowest(1.5))
    twice = pd.concat([found.rows, found.rows.assign(repeat=1)], ignore_index=True)
    both = Comparison(twice, found.a, found.b, repeats=2)
    table = report.answer(both).set_index("workload")["false alarms"]
    assert table.to_dict() == {"resnet56, batch 16": 0, "resnet56, batch 16, p50": 0, "resnet56, batch 16, p99": 2}
    assert comparison.alarms(twice).tolist() == [True, True]


def test_a_comparison_of_training_has_no_quantiles(draw_records, tmp_path):
    made = draw_records(networks=("alexnet_cifar",))
    side = verdicts.recorded(reader.read(made.write(tmp_path / "trains")))
    rows = verdicts.compare(side, side)
    assert not set(calls.COLUMNS) & set(rows.columns)
    assert calls.measures(rows).drop(columns="measure").equals(rows)
