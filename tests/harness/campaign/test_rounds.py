"""Further rounds run exactly the trials whose interval is too wide, in an order that a resumed campaign repeats."""

import numpy as np
import pytest

from analysis.records import reader
from harness.campaign import rounds
from harness.campaign.rounds import Rounds
from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite, load_suite
from tests.harness.campaigns import run, table

ADAPTIVE = {"processes": 3, "interval": 0.02, "processes_most": 6}


def trial(network: str) -> Trial:
    return Trial("one", "1.0", network, 2, 1, "cpu", 1, "fp32", "stock", "host", 0.1, 1, 1, False, 3)


@pytest.fixture
def wide(monkeypatch):
    """Let trials be too wide as long as `needs` says, in processes by network."""
    def make(**needs: int) -> None:
        monkeypatch.setattr(rounds.reader, "read", lambda folder: folder)
        monkeypatch.setattr(rounds.summary, "too_wide", lambda campaign, interval, processes: {
            trial(network).trial for network, count in needs.items() if processes < count})
    return make


def counts(order):
    return {name: sorted(process for trial, process in order if trial.network == name) for name in ("a", "b", "c")}


def test_a_suite_that_asks_for_no_interval_has_the_planned_rounds_only(wide, tmp_path):
    wide(a=9)
    ahead = Rounds([trial("a")], Suite(processes=3), tmp_path)
    assert ([process for _, process in ahead], ahead.total) == ([0, 1, 2], 3)


def test_each_further_round_runs_the_trials_that_are_still_too_wide(wide, tmp_path):
    wide(a=3, b=5, c=99)
    suite = Suite(**ADAPTIVE)
    ahead = Rounds([trial(network) for network in "abc"], suite, tmp_path)
    order = list(ahead)
    assert counts(order) == {"a": [0, 1, 2], "b": [0, 1, 2, 3, 4], "c": [0, 1, 2, 3, 4, 5]}
    assert [process for _, process in order] == sorted(process for _, process in order)
    assert ahead.total == len(order) == 14
    assert list(Rounds([trial(network) for network in "abc"], suite, tmp_path)) == order


@pytest.mark.parametrize(("keys", "message"), [
    ({"interval": 0.02, "processes": 2}, "needs 3 processes or more"),
    ({"interval": 0.02, "processes": 30}, "no more than processes_most"),
    ({"interval": 0}, "interval"),
])
def test_an_interval_that_cannot_be_reached_is_wrong_use(tmp_path, keys, message):
    file = tmp_path / "suite.yaml"
    file.write_text("\n".join(f"{key}: {value}" for key, value in keys.items()))
    with pytest.raises(WrongUse, match=message):
        load_suite(file)


def test_a_campaign_runs_further_rounds_and_says_where_they_did_not_help(tmp_path, stand_in):
    stand_in(one="reference")
    done = run(tmp_path, frameworks="one", **{**ADAPTIVE, "interval": 1e-9, "processes_most": 4})
    assert done.processes["process"].tolist() == [0, 1, 2, 3]
    row = table(tmp_path)["one tiny_fcn"]
    assert (row["status"], row["processes"]) == ("ok", "4")
    assert row["reason"].rpartition("; ")[2].endswith(" to either side after 4 processes, 1e-07 % asked for")


def test_a_campaign_killed_in_a_further_round_resumes_with_that_round(tmp_path, stand_in):
    stand_in(one="reference")
    keys = {"frameworks": "one", **ADAPTIVE, "interval": 1e-9, "processes_most": 5}
    whole = run(tmp_path, **keys)
    lines = (tmp_path / "processes.csv").read_text().splitlines(keepends=True)
    (tmp_path / "processes.csv").write_text("".join(lines[:-1]))
    assert reader.read(tmp_path).processes["process"].tolist() == [0, 1, 2, 3]
    again = run(tmp_path, resume=True, **keys)
    assert again.processes["process"].tolist() == whole.processes["process"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(WrongUse, match=r"interval is 0\.5 now and was 1e-09"):
        run(tmp_path, resume=True, **{**keys, "interval": 0.5})


def test_a_trial_that_failed_in_the_last_round_is_not_run_again(tmp_path, stand_in):
    stand_in(one="processes.wire:Raises")
    done = run(tmp_path, frameworks="one", **{**ADAPTIVE, "interval": 1e-9})
    assert np.unique(done.processes["process"]).tolist() == [0, 1, 2]
