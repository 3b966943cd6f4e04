"""The computing part of scripts/sampler_overhead.py, from made-up timings, and one whole run of a network of microseconds."""

import sys

import numpy as np
import pytest

from harness.campaign.process import Outcome
from harness.telemetry.sampler import Sampler
from scripts import sampler_overhead
from scripts.sampler_overhead import Side, Watch


def sides(without, with_, share=0.02):
    return {"without": Side([np.full(4, seconds) for seconds in without], [0.001]),
            "with": Side([np.full(4, seconds) for seconds in with_], [share], [50.0])}


def test_the_report_says_ratio_share_and_rate():
    assert sampler_overhead.report(sides([0.010] * 3, [0.01001] * 3)) == [
        "step time with the sampler / without: 1.0010 (95 % interval 1.0010 to 1.0010; 3 processes a side)",
        "the driver's share of a core: 2.00 % with the sampler, 0.10 % without",
        "samples a second: 50.0",
    ]


@pytest.mark.parametrize(("with_", "share", "cheap"), [
    ([0.010] * 3, 0.02, True), ([0.0105] * 3, 0.02, False), ([0.0095] * 3, 0.02, False), ([0.010] * 3, 0.05, False),
    ([0.0095, 0.0105, 0.011], 0.02, True),  # the interval is wide and holds 1: nothing was shown
])
def test_sampling_that_costs_more_than_promised_is_found(with_, share, cheap):
    assert sampler_overhead.cheap(sides([0.010] * 3, with_, share)) is cheap


def test_the_drivers_share_is_taken_between_timed_windows(monkeypatch):
    watch = Watch()
    watch.moments = [(1.0, 0.50), (2.0, 0.53), (4.0, 0.55)]
    assert watch.shares() == pytest.approx([0.03, 0.01])


def test_a_process_that_fails_is_wrong_use_and_no_number():
    with pytest.raises(sampler_overhead.WrongUse, match="t: crashed: signal 11"):
        failed = Outcome({"trial": "t", "status": "failed", "reason": "crashed: signal 11"})
        sampler_overhead._note(Side(), failed, Watch(), Sampler())


def test_both_sides_of_a_small_trial_are_timed(capsys):
    words = ["--framework", "reference", "--network", "tiny_fcn", "--batch", "4", "--device", "cpu", "--processes", "1",
             "--windows", "2", "--window-seconds", "0.01", "--interpreter", f"reference={sys.executable}"]
    assert sampler_overhead.main(words) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.rpartition(":")[0] for line in lines[:2]) == ["process 1 with the sampler", "process 1 without the sampler"]
    assert lines[2].startswith("step time with the sampler / without: ") and lines[-1].startswith("samples a second: ")


def test_an_unknown_network_is_wrong_use(capsys):
    assert sampler_overhead.main(["--network", "fcn55"]) == 2
    assert "fcn55" in capsys.readouterr().err
