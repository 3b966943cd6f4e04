"""The search finds the first slower release, asks no more than it must, and never guesses where a comparison decides nothing."""

import csv
import math
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from harness.campaign import campaign
from harness.campaign.rehearsal import SideFailed
from harness.campaign.session import Session
from harness.cli import main
from harness.cli.comparisons import compare as cli_compare
from harness.comparison import plan as comparing
from harness.comparison.bisection import (
    ATTEMPTS,
    INCONCLUSIVE,
    REGRESSED,
    SOUND,
    Step,
    decide,
    measure_of,
    refuse_several,
    search,
    sentence,
    step_of,
    write,
)
from harness.environments import recipes
from harness.errors import WrongUse
from harness.plan.planner import Machine, make_trials
from harness.plan.suite import Suite
from tests.slow import slow_but

SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 3, "windows": 2, "window_seconds": 0.01,
         "data": "host", "peaks": False, "telemetry": False}
RELEASES = [f"1.{number}" for number in range(9)]


def history(first_slow, slow=1.3, noisy=(), mended_by=99, width=0.02):
    """Compare releases of which those from `first_slow` on are slower; `noisy` ones decide nothing before attempt `mended_by`."""
    asked = []

    def compare(release, attempt, cut):
        asked.append((release, attempt))
        ratio = slow if RELEASES.index(release) >= first_slow else 1.0
        spread = 0.5 if release in noisy and attempt < mended_by else width
        low, high = ratio * (1 - spread), ratio * (1 + spread)
        return Step(release, 5 * 2**attempt, ratio, low, high, decide(low, high, cut))

    return compare, asked


@pytest.mark.parametrize("first", range(1, 9))
def test_the_first_slower_release_is_found_in_four_comparisons(first):
    compare, asked = history(first)
    answer = search(RELEASES, 0.03, compare)
    assert (answer.last_sound, answer.first, answer.between) == (RELEASES[first - 1], RELEASES[first], ())
    assert len(asked) <= 4
    assert sentence(answer) == f"The first release shown to be slower is {RELEASES[first]}; {RELEASES[first - 1]} is not."


def test_two_releases_need_one_comparison():
    compare, asked = history(1)
    assert search(RELEASES[:2], 0.0, compare).first == "1.1"
    assert asked == [("1.1", 0)]


def test_without_a_regression_nothing_is_searched():
    compare, asked = history(99)
    answer = search(RELEASES, 0.03, compare)
    assert (answer.first, len(asked)) == ("", 1)
    assert sentence(answer) == "no regression beyond 3 % between 1.0 and 1.8"


def test_a_comparison_that_decides_nothing_gets_more_processes():
    compare, _ = history(5, noisy=("1.4",), mended_by=2)
    answer = search(RELEASES, 0.03, compare)
    assert answer.first == "1.5"
    assert [step.processes for step in answer.steps if step.release == "1.4"] == [5, 10, 20]


def test_a_release_that_stays_inconclusive_is_named_and_not_guessed():
    compare, asked = history(5, noisy=("1.4", "1.5"))
    answer = search(RELEASES, 0.03, compare)
    assert (answer.last_sound, answer.first, answer.between) == ("1.3", "1.6", ("1.4", "1.5"))
    assert sentence(answer).endswith("1.4, 1.5 could not be decided and may already have it.")
    assert asked.count(("1.4", ATTEMPTS - 1)) == 1


def test_an_inconclusive_end_ends_the_search():
    compare, asked = history(5, noisy=("1.8",))
    answer = search(RELEASES, 0.03, compare)
    assert (answer.first, len(asked)) == ("", ATTEMPTS)
    assert sentence(answer) == "inconclusive: 1.8 takes 1.300 times as long (0.650 to 1.950) after 20 processes"


def test_a_release_that_cannot_run_is_not_tried_again():
    compare, asked = history(5)

    def broken(release, attempt, cut):
        if release != "1.4":
            return compare(release, attempt, cut)
        asked.append((release, attempt))
        return Step(release, 0, math.nan, math.nan, math.nan, INCONCLUSIVE, "B: failed: crashed")

    answer = search(RELEASES, 0.03, broken)
    assert (answer.last_sound, answer.first, answer.between) == ("1.3", "1.5", ("1.4",))
    assert asked.count(("1.4", 0)) == 1


def test_a_smaller_step_on_the_way_is_not_taken_for_the_regression():
    """Half of the whole slow-down divides: 1.2 became 2 % slower, 1.6 another 28 %."""
    def compare(release, attempt, cut):
        ratio = 1.3 if release >= "1.6" else 1.02 if release >= "1.2" else 1.0
        return Step(release, 5, ratio, ratio * 0.99, ratio * 1.01, decide(ratio * 0.99, ratio * 1.01, cut))

    assert search(RELEASES, 0.0, compare).first == "1.6"


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (1.11, 1.2, REGRESSED), (1.0, 1.09, SOUND), (1.0, 1.2, INCONCLUSIVE), (math.nan, math.nan, INCONCLUSIVE)])
def test_an_interval_is_divided_at_the_cut(low, high, verdict):
    assert decide(low, high, 1.1) == verdict


def test_the_steps_are_written_as_csv(tmp_path):
    compare, _ = history(1)
    answer = search(RELEASES[:2], 0.03, compare)
    write(answer.steps, tmp_path / "bisect.csv")
    with (tmp_path / "bisect.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"release": "1.1", "processes": "5", "ratio": "1.3", "low": "1.274", "high": "1.326",
                                               "verdict": "regressed", "reason": "", "measure": ""}]


def test_a_search_by_p99_says_so():
    def compare(release, attempt, cut):
        low, high = (1.2, 1.4) if release >= "1.3" else (0.98, 1.01)
        return Step(release, 5, (low + high) / 2, low, high, decide(low, high, cut), measure="p99")

    assert sentence(search(RELEASES, 0.03, compare)).startswith("The first release shown to be slower in p99 is 1.3; 1.2 is not")


@pytest.mark.parametrize(("name", "mode", "answer"), [
    ("time", "training", ""), ("time", "inference", ""), ("p99", "inference", "p99"),
    ("p99", "training", "--measure p99: name one of time; only calls of inference have p50 and p99"),
    ("p90", "inference", "--measure p90: name one of time, p50, p99")])
def test_a_measure_belongs_to_the_suites_mode(name, mode, answer):
    try:
        found = measure_of(name, Suite(mode=mode), ("p50", "p99"))
    except WrongUse as wrong:
        found = str(wrong)
    assert found == answer


def test_one_workload_is_followed():
    rows = pd.DataFrame([{"batch": 4, "ratio": 1.2, "ratio_low": 1.15, "ratio_high": 1.25, "reason": "", "processes_a": 5,
                          "processes_b": 6}])
    assert step_of("1.1", rows.assign(measure=""), 1.1) == Step("1.1", 6, 1.2, 1.15, 1.25, REGRESSED, "")


def planned_of(**suite):
    wanted = Suite.model_validate({"frameworks": "pytorch", "networks": "fcn5", "batches": 128, "data": "host", **suite})
    kinds = ["cpu", "cuda"] if wanted.device == "both" else ["cpu"]
    releases = {spec: spec.partition("==")[2] or "2.13.0" for spec in wanted.frameworks}
    return wanted, [trial for kind in kinds for trial in make_trials(wanted, releases, Machine(kind, 4, 1), lambda name: False)]


@pytest.mark.parametrize(("suite", "said"), [
    ({"devices": [1, 2]}, "2: devices 1, 2 (add devices=1, for example)"),
    ({"devices": [1, 2], "scaling": "strong"}, "2: devices 1, 2 (add devices=1, for example)"),
    ({"devices": 2, "scaling": ["weak", "strong"]}, "2: scaling weak, strong (add scaling=weak, for example)"),
    ({"devices": [1, 2], "scaling": ["weak", "strong"], "batches": [4, 8]},
     "5: devices 1, 2 (add devices=1, for example); batch 4, 8 (add batch=4, for example); "
     "scaling weak, strong (add scaling=weak, for example)"),
    ({"devices": 2, "scaling": "strong", "batches": [128, 129]}, "2: batch 128, 129 (add batch=128, for example)"),
    ({"devices": [1, 2], "strategies": ["ring", "ddp"]},
     "3: devices 1, 2 (add devices=1, for example); strategy ring, ddp (add strategy=ring, for example)"),
    ({"threads": [1, 2], "batches": [4, 8]},
     "4: batch 4, 8 (add batch=4, for example); threads 1, 2 (add threads=1, for example)"),
    ({"device": "both"}, "2: device cpu, cuda (add device=cpu, for example)"),
    ({"precisions": ["fp32", "bf16"]}, "2: precision fp32, bf16 (add precision=fp32, for example)"),
    ({"tunings": ["stock", "tuned"]}, "2: tuning stock, tuned (add tuning=stock, for example)"),
    ({"data": ["host", "device"]}, "2: data host, device (add data=host, for example)"),
    ({"networks": ["fcn5", "lstm32"]}, "2: network fcn5, lstm32 (name one with --network)"),
    ({"frameworks": ["pytorch==2.12.0", "pytorch"]}, "2: framework pytorch==2.12.0, pytorch==2.13.0 (name one)"),
    ({"skip": [{"network": "fcn5"}]}, "none: its `skip` leaves out every one"),
])
def test_what_makes_several_workloads_is_named_with_its_values_and_remedy(suite, said):
    with pytest.raises(WrongUse) as refused:
        refuse_several(*planned_of(**suite))
    assert str(refused.value) == f"bisect follows one workload and the suite has {said}"
    assert refuse_several(*planned_of()) is None


@pytest.mark.parametrize(("releases", "ratios", "code", "said"), [
    ("1.0,1.1,1.2", {"1.1": 1.0, "1.2": 1.3}, 0, "The first release shown to be slower is 1.2; 1.1 is not."),
    ("1.0,1.1", {"1.1": 1.0}, 1, "no regression beyond 10 % between 1.0 and 1.1"),
    ("1.0", {}, 2, "--releases 1.0: write two or more, with commas"),
    ("1.0,2.0,1.0", {}, 2, "--releases 1.0,2.0,1.0: 1.0 is named twice; name it once"),
])
def test_the_command_compares_each_release_with_the_first(monkeypatch, capsys, tmp_path, releases, ratios, code, said):
    asked = []

    def judge(place):
        ratio = ratios[place.name.partition("-")[0]]
        return SimpleNamespace(rows=pd.DataFrame([{"ratio": ratio, "ratio_low": ratio * 0.98, "ratio_high": ratio * 1.02,
                                                   "reason": "", "processes_a": 5, "processes_b": 5, "batch": 4}]))

    monkeypatch.setattr(cli_compare, "run_live", lambda request, *arguments: asked.append(
        (request.a, request.b, request.overrides, request.interpreters)))
    monkeypatch.setattr(cli_compare, "_show", lambda found, out: None)
    monkeypatch.setattr(cli_compare, "judge", judge)
    monkeypatch.setattr(cli_compare, "_prepare", lambda request, dirty: SimpleNamespace(
        suite=Suite(processes=5), trials=[SimpleNamespace(side="A")]))
    monkeypatch.setattr(sys, "argv", ["dlbench", "bisect", "jax:tuned", "--releases", releases, "--network", "fcn5", "--threshold",
                                      "10%", "batch=4", "--out", str(tmp_path / "out"), "--interpreter", f"jax==1.0={sys.executable}",
                                      "--interpreter", f"jax==1.1={sys.executable}"])
    with pytest.raises(SystemExit) as end:
        main.main()
    printed = capsys.readouterr()
    assert (end.value.code or 0, said in printed.out + printed.err) == (code, True)
    assert asked == [("jax==1.0:tuned", f"jax=={release}:tuned", ("batch=4", "networks=fcn5", "processes=5"),
                      (("jax==1.0", Path(sys.executable)), *([("jax==1.1", Path(sys.executable))] if release == "1.1" else []))) for release in sorted(ratios, reverse=True)]


@pytest.fixture
def bisect(monkeypatch, capsys, tmp_path, stand_in, made_up_clock):
    """Run the command in this process and a folder of its own, with a suite of seconds; its releases are all alike."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    stand_in(same="reference:Simulated")
    monkeypatch.setattr(Session, "greet", lambda self, worker, trial: worker.ask("hello", 60))
    load = recipes.load

    def load_with_releases(name, folder=None):
        framework = load(name)
        return framework.model_copy(update={"releases": dict.fromkeys(RELEASES, framework.releases[framework.default])})

    monkeypatch.setattr(recipes, "load", load_with_releases)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dlbench", "bisect", *words])
        with pytest.raises(SystemExit) as end:
            main.main()
        return (end.value.code or 0, *capsys.readouterr())

    return call


WORDS = ["same", "--network", "tiny_fcn", "--suite", "small.yaml"]


@pytest.fixture
def planned(monkeypatch):
    """Plan comparisons and run none: what each shows, by its release (wrong use without), and the suites that were planned."""
    shown, suites = {}, []

    def judge(place):
        release = place.name.partition("-")[0]
        if release not in shown:
            raise WrongUse(f"{place}: no records")
        ratio, low, high = shown[release]
        return SimpleNamespace(rows=pd.DataFrame([{"ratio": ratio, "ratio_low": low, "ratio_high": high, "reason": "",
                                                   "processes_a": 3, "processes_b": 3}]))

    monkeypatch.setattr(cli_compare, "run_live", lambda request, *arguments: suites.append(comparing.prepare(request).suite))
    monkeypatch.setattr(cli_compare, "_show", lambda found, out: None)
    monkeypatch.setattr(cli_compare, "judge", judge)
    return shown, suites


@pytest.mark.parametrize(("words", "most"), [(["interval=0.02", "processes=6"], [20, 40, 80]), (["processes=6"], [20, 20, 20])])
def test_an_interval_may_ask_for_more_processes_with_each_attempt(bisect, planned, words, most):
    shown, suites = planned
    shown["1.1"] = (1.0, 0.5, 2.0)
    code, out, error = bisect(*WORDS, "--releases", "1.0,1.1", *words)
    assert (code, error, "inconclusive: 1.1 takes 1.000 times as long" in out) == (1, "", True)
    assert [(suite.processes, suite.processes_most) for suite in suites] == list(zip([6, 12, 24], most, strict=True))


@pytest.mark.parametrize(("releases", "most"), [("1.0,1.1", "1 comparison"), ("1.0,1.1,1.2,1.3", "3 comparisons")])
def test_a_dry_run_says_how_many_comparisons_there_may_be_and_measures_nothing(bisect, planned, tmp_path, releases, most):
    code, out, error = bisect(*WORDS, "--releases", releases, "--dry-run", "--out", "out")
    assert (code, error, f"at most {most} like this one" in out, "Nothing was started." in out) == (0, "", True, True)
    assert planned[1] == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("measure", "said", "ratio"), [
    ("p99", "The first release shown to be slower in p99 is 1.2; 1.0 is not.", "1.3"),
    ("time", "no regression beyond 0 % between 1.0 and 1.2", "1.0"),
    ("p50", "inconclusive: too few calls show their p50", "")])
def test_a_release_is_searched_by_the_measure_that_was_named(bisect, planned, monkeypatch, tmp_path, measure, said, ratio):
    (tmp_path / "calls.yaml").write_text(yaml.safe_dump({**SMALL, "mode": "inference"}))
    time, slow, few = ({"ratio": ratio, "ratio_low": ratio - 0.02, "ratio_high": ratio - 0.01} for ratio in (1.0, 1.3, math.nan))
    row = {**time, "reason": "", "processes_a": 3, "processes_b": 3, "verdict": "", "visible": 0.01, "latency_p50_seconds_a": 0.1}
    for prefix, found in (("latency_p50_", few), ("latency_p99_", slow)):
        row |= {prefix + key: value for key, value in {**found, "verdict": "", "visible": 0.01}.items()}
    monkeypatch.setattr(cli_compare, "judge", lambda place: SimpleNamespace(rows=pd.DataFrame([row])))
    code, printed, _ = bisect("same", "--network", "tiny_fcn", "--suite", "calls.yaml", "--releases", "1.0,1.2",
                              "--measure", measure, "--out", "out")
    with (tmp_path / "out" / "bisect.csv").open() as file:
        first = next(csv.DictReader(file))
    assert (code, said in printed) == (int(measure != "p99"), True)
    assert (first["ratio"], first["measure"]) == (ratio, measure if measure != "time" else "")


def test_a_search_that_ends_in_wrong_use_keeps_the_comparisons_it_made(bisect, planned, tmp_path):
    shown, _ = planned
    shown["1.2"] = (1.3, 1.2, 1.4)
    code, _, error = bisect(*WORDS, "--releases", "1.0,1.1,1.2", "--out", "out")
    assert (code, error) == (2, "dlbench: out/1.1-3: no records\n")
    with (tmp_path / "out" / "bisect.csv").open() as file:
        assert [(row["release"], row["verdict"]) for row in csv.DictReader(file)] == [("1.2", "regressed")]


def test_a_release_that_cannot_be_built_or_run_decides_nothing(bisect, planned, monkeypatch, tmp_path):
    shown, _ = planned
    shown.update({"1.1": (1.0, 0.9, 1.1), "1.3": (1.3, 1.2, 1.4)})

    def run_live(request, *rest):
        if request.b == "same==1.2":
            raise SideFailed({"a": request.a, "b": request.b}, "B", "crashed: no such symbol")

    monkeypatch.setattr(cli_compare, "run_live", run_live)
    code, out, error = bisect(*WORDS, "--releases", "1.0,1.1,1.2,1.3", "--out", "out")
    assert (code, error) == (0, "")
    assert "The first release shown to be slower is 1.3; 1.1 is not; 1.2 could not be decided" in out
    with (tmp_path / "out" / "bisect.csv").open() as file:
        assert ("1.2", "B: crashed: no such symbol") in [(row["release"], row["reason"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("place", slow_but([[]], [[], ["--out", "a folder"]]))
def test_the_command_that_a_stopped_search_prints_goes_on_with_it(bisect, monkeypatch, place):
    run, ran = campaign.run, []

    def stop_after_three(plan, folder, listener, resume):
        done = listener.done

        def stop(outcome, number, total):
            done(outcome, number, total)
            ran.append((folder, resume, outcome.row["trial"], outcome.row["process"]))
            if len(ran) == 3:
                raise KeyboardInterrupt

        listener.done = stop
        run(plan, folder, listener, resume)

    monkeypatch.setattr(campaign, "run", stop_after_three)
    code, out, error = bisect(*WORDS, "--releases", "1.0,1.1", "--threshold", "50%", *place)
    said = out.splitlines()[-1].partition("Stopped; every finished process is kept. Go on with: dlbench bisect ")[2]
    assert (code, error, "--resume" in said) == (1, "", False)
    code, out, error = bisect(*shlex.split(said))
    folder = ran[0][0].parent
    assert (code, error, "no regression beyond 50 % between 1.0 and 1.1" in out) == (1, "", True)
    assert [each[:2] for each in ran] == [(folder / "1.1-3", False)] * 3 + [(folder / "1.1-3", True)] * 3
    assert len(set(ran)) == len(ran) == 6
    assert (folder / "bisect.csv").exists()


def test_several_workloads_are_refused_before_anything_runs(bisect, planned, tmp_path):
    _, suites = planned
    code, out, error = bisect(*WORDS, "--releases", "1.0,1.1", "--out", "out", "threads=1,2")
    assert (code, out, suites, (tmp_path / "out").exists()) == (2, "", [], False)
    assert error == "dlbench: bisect follows one workload and the suite has 2: threads 1, 2 (add threads=1, for example)\n"
