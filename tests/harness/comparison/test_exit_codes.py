"""What a job in CI reads of a comparison: its exit code, its JSON and Markdown, and what it knows of old regressions."""

import json
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.environments import store
from harness.environments.interpreters import NoPython
from harness.environments.store import BuildFailed
from tests.analysis.conftest import make_records

SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 3, "windows": 2, "window_seconds": 0.01,
         "data": "host", "peaks": False, "telemetry": False}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    Path("small.yaml").write_text(yaml.safe_dump(SMALL))


@pytest.fixture
def recorded(tmp_path):
    """Write a campaign of five processes of two networks: `recorded("new", fcn5=1.2)` is slower in one."""
    def make(name, processes=5, **slower):
        made = make_records(networks=())
        for network in ("fcn5", "alexnet_cifar"):
            made.add_trial("pytorch", network, 128, processes=processes, slower=slower.get(network, 1.0),
                           release="2.13.0" if name == "new" else "2.12.0")
        made.meta["name"] = name
        made.prove_each_process()
        return str(made.write(tmp_path / "records" / name))
    return make


@pytest.mark.parametrize(("slower", "words", "code", "outcome"), [
    ({}, ["--fail-on-regression", "20%"], 0, "fine"),
    ({"fcn5": 1.3}, [], 0, "fine"),
    ({"fcn5": 1.3}, ["--threshold", "5%"], 1, "regression"),
    ({"fcn5": 1.3}, ["--threshold", "5%", "--threshold", "fcn5=60%"], 0, "fine"),
    ({}, ["--threshold", "0.1%"], 3, "inconclusive"),
    ({"fcn5": 1.3}, ["--threshold", "fcn5=60%"], 0, "fine"),
    ({"fcn5": 1.3}, ["--threshold", "alexnet_cifar=20%"], 0, "fine"),
    ({"fcn5": 1.3}, ["--threshold", "fcn5=30%"], 3, "inconclusive"),
    ({"fcn5": 1.3, "processes": 2}, [], 3, "inconclusive"),
])
def test_thresholds_of_all_workloads_and_of_one_decide_the_exit_code(dlbench, recorded, slower, words, code, outcome):
    found = dlbench("compare", recorded("old"), recorded("new", **slower), *words, "--json", "-")
    said = json.loads(found.out)
    assert (found.code, said["outcome"], said["exit_code"]) == (code, outcome, code)
    rows = {row["network"]: row for row in said["workloads"]}
    assert set(rows) == {"fcn5", "alexnet_cifar"}
    assert rows["fcn5"]["release_b"] == "2.13.0"


@pytest.mark.parametrize(("side", "fault", "code", "refusal"), [
    ("new", {"check": "different", "check_reason": "Nesterov momentum"}, 1, "different"),
    ("old", {"check": "different", "check_reason": "Nesterov momentum"}, 3, "doubtful"),
    ("new", {"status": "failed", "reason": "crashed: no room"}, 4, "failed"),
    ("old", {"status": "failed", "reason": "crashed: no room"}, 4, "failed"),
    ("new", {"parameters": 7}, 3, "doubtful"),
])
def test_only_a_new_side_that_trains_something_else_is_a_regression(dlbench, recorded, side, fault, code, refusal):
    places = {name: recorded(name) for name in ("old", "new")}
    file = Path(places[side], "processes.csv")
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    chosen = rows["trial"].str.contains("fcn5")
    for column, value in fault.items():
        rows.loc[chosen, column] = str(value)
    rows.to_csv(file, index=False)
    if "status" in fault:
        windows = pd.read_csv(Path(places[side], "windows.csv"))
        windows[~windows["trial"].str.contains("fcn5")].to_csv(Path(places[side], "windows.csv"), index=False)
    found = dlbench("compare", places["old"], places["new"], "--out", "out")
    table = pd.read_csv("out/compare.csv", keep_default_na=False)
    assert (found.code, table["refusal"].tolist()) == (code, [refusal, ""])


def known(**changes):
    entry = {"framework": "pytorch", "releases": "2.13..2.14", "network": "fcn5", "reason": "a slower GEMM, on purpose",
             "until": str(date.today() + timedelta(days=1)), **changes}
    Path("known.yaml").write_text(yaml.safe_dump({"thresholds": {"default": "5%", "alexnet_cifar": 0.6}, "acknowledged": [entry]}))
    return ["--rules", "known.yaml"]


@pytest.mark.parametrize(("change", "code", "said"), [
    ({}, 0, "Acknowledged regression: fcn5, batch 128 (1.3"),
    ({"until": 0}, 0, "Acknowledged regression: fcn5, batch 128 (1.3"),
    ({"until": -1}, 1, "No longer acknowledged: pytorch fcn5: a slower GEMM, on purpose (until"),
    ({"releases": "2.14..2.15"}, 1, "Regression beyond its threshold: fcn5"),
    ({"network": "alexnet_cifar"}, 1, "Regression beyond its threshold: fcn5"),
    ({"framework": "jax"}, 1, "Regression beyond its threshold: fcn5"),
])
def test_an_acknowledged_regression_is_shown_and_does_not_fail_until_its_day(dlbench, recorded, change, code, said):
    if "until" in change:
        # Days from now, not from when the tests were collected: midnight may lie between.
        change = {"until": str(date.today() + timedelta(days=change["until"]))}
    found = dlbench("compare", recorded("old"), recorded("new", fcn5=1.3), *known(**change), "--markdown", "short.md")
    assert (found.code, said in found.out, said in Path("short.md").read_text()) == (code, True, True)


@pytest.mark.parametrize(("words", "message"), [
    (["--threshold", "nobody=3%"], "thresholds: unknown network nobody; Known: "),
    (["--threshold", "fcn5=much"], "--threshold much: write a share such as 3% or 0.03"),
    (["--rules", "no.yaml"], "no.yaml: no such file"),
    (["--json", "-", "--markdown", "-"], "--json - and --markdown -: only one can be the standard output"),
    (["--json", "no/such/folder.json"], "--json no/such/folder.json: cannot be written (No such file or directory)"),
])
def test_rules_and_places_that_cannot_be_meant_end_with_2_before_anything_is_read(dlbench, words, message):
    code, _, error = dlbench("compare", "no/records", "no/others", *words)
    assert (code, message in error, "Traceback" in error) == (2, True, False)


@pytest.mark.parametrize(("change", "message"), [
    ({"until": "soon"}, "acknowledged.0.until: 'soon': write a day as in 2027-01-31"),
    ({"releases": "2.13..2.12"}, "acknowledged.0.releases: 2.13..2.12: ends before it begins"),
    ({"framework": "nobody"}, "unknown framework nobody"),
    ({"reason": ""}, "acknowledged.0.reason: string should have at least 1 character"),
    ({"because": "of it"}, "acknowledged.0.because: unknown key"),
])
def test_a_file_of_rules_with_a_slip_ends_with_2_and_its_place(dlbench, change, message):
    code, _, error = dlbench("compare", "no/records", "no/others", *known(**change))
    assert (code, message in error, "Traceback" in error) == (2, True, False)


def test_the_markdown_says_what_a_reader_must_know_and_the_job_summary_is_added_to(dlbench, recorded, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("# before\n")
    found = dlbench("compare", recorded("old"), recorded("new", fcn5=1.3), "--threshold", "5%", "--markdown", "-")
    assert found.out.startswith("## dlbench: new against old: regression\n\nA is old, B is new. B against A: 1 slower, 1 no difference seen.\n")
    assert "\n| workload | A (ms) | B (ms) | time of B / A | verdict |" in found.out
    assert "\n- Regression beyond 5 %: fcn5, batch 128 (1.3" in found.out
    assert "\n- False alarms: by chance 5 % of comparisons of equal sides give one. No calibration of this machine was given" in found.out
    assert "The smallest visible difference is " in found.out
    assert "Page: " in found.err and "Page: " not in found.out
    assert Path("summary.md").read_text() == f"# before\n{found.out}\n"


def test_a_calibration_adds_the_false_alarms_of_this_machine(dlbench, stand_in, made_up_clock):
    stand_in(same="reference:Simulated", slow="reference:Slower50")
    assert dlbench("compare", "same", "same", "--suite", "small.yaml", "--repeats", "2", "--out", "calibration").code == 0
    found = dlbench("compare", "same", "slow", "--suite", "small.yaml", "--calibration", "calibration", "--json", "-", "--out", "out")
    assert json.loads(found.out)["false_alarms"] == {"by_chance": 0.05, "comparisons": 2, "seen": 0}
    assert "On this machine 0 of 2 comparisons of same with itself did." in found.err
    wrong = dlbench("compare", "calibration", "--calibration", "out")
    assert (wrong.code, "compares same with slow; name a comparison of a release with itself" in wrong.err) == (2, True)


def refuse_to_build(monkeypatch, **faults):
    build = store.build

    def fail(framework, *rest):
        if framework in faults:
            raise faults[framework]
        return build(framework, *rest)

    monkeypatch.setattr(store, "build", fail)


@pytest.mark.parametrize(("words", "side", "reason"), [
    (["same", "broken"], "B", "crashed: RuntimeError: the third step is broken (log: out/logs/broken-"),
    (["broken", "same"], "A", "crashed: RuntimeError: the third step is broken (log: out/logs/broken-"),
    (["same", "good"], "B", "ERROR: No matching distribution found for good==9"),
    (["same", "old"], "B", "Python 3.6 is needed and was not found"),
    (["same", "dies"], "B", "crashed: "),
])
def test_a_side_that_cannot_be_built_or_run_ends_with_4_before_anything_is_timed(
        dlbench, stand_in, made_up_clock, monkeypatch, words, side, reason):
    stand_in(same="reference:Simulated", broken="processes.wire:Raises", good="reference", old="reference", dies="import_fails")
    refuse_to_build(monkeypatch, good=BuildFailed("ERROR: No matching distribution found for good==9"),
                    old=NoPython(["3.6"], "Python 3.6 is needed and was not found"))
    found = dlbench("compare", *words, "--suite", "small.yaml", "--out", "out", "--json", "out.json", "--markdown", "out.md")
    said = json.loads(Path("out.json").read_text())
    assert (found.code, said["outcome"], said["exit_code"], said["workloads"]) == (4, "not run", 4, [])
    assert said["reason"].startswith(f"{side}: {reason}")
    assert f"{side} ({words['AB'.index(side)]}) could not be built or run: {reason}" in found.out
    assert f"**{side}** could not be built or run, so nothing was timed:" in Path("out.md").read_text()
    assert not Path("out/windows.csv").exists() and not Path("out/campaign.json").exists()


def test_a_dry_run_prints_both_sides_and_starts_nothing(dlbench, stand_in):
    built = stand_in(same="reference:Simulated", slow="reference:Slower50")
    code, out, error = dlbench("compare", "same", "slow", "--suite", "small.yaml", "--out", "out", "--dry-run")
    assert (code, error, built, Path("out").exists()) == (0, "", [], False)
    assert "A: same" in out and "B: slow" in out and "2 trials, 3 processes each, about" in out and "Nothing was started." in out
    code, _, error = dlbench("compare", "some/records", "other/records", "--dry-run")
    assert (code, "--dry-run: only for live comparisons" in error) == (2, True)


@pytest.fixture
def builds(tmp_path):
    """Two commands that run this Python; the second finds metadata of its own, as of another build of one version."""
    made = []
    for name in ("this", "other"):
        folder = tmp_path / name / "site"
        metadata = folder / f"numpy-{np.__version__}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: numpy\nVersion: {np.__version__}\n")
        made.append(tmp_path / name / "python")
        made[-1].write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        made[-1].chmod(0o755)
    return made


def test_two_local_builds_of_one_version_keep_their_names_and_places(dlbench, stand_in, made_up_clock, builds):
    stand_in(one="reference:Simulated")
    sides = [f"{name}={build}" for name, build in zip(("before", "after"), builds, strict=True)]
    found = dlbench("compare", *sides, "--as", "one", "--suite", "small.yaml", "--out", "out")
    meta = json.loads(Path("out/campaign.json").read_text())
    assert (found.code, found.err, meta["comparison"]) == (0, "", {
        "a": "before", "b": "after", "repeats": 1, "local": {"A": str(builds[0]), "B": str(builds[1])}})
    assert {name: each["origin"] for name, each in meta["environments"].items()} == {
        f"one=={np.__version__} of {side}": "existing" for side in "AB"}
    assert "A: before, B: after" in found.out and "Both sides are the same" not in found.out
    assert dlbench("audit", "out").code == 0


@pytest.mark.parametrize(("sides", "more", "said"), [
    (["before={0}", "after={0}"], ["--as", "one"], "before and after are one build, "),
    (["before={0}", "after={2}"], ["--as", "one"], "before and after are one build, "),
    (["one={0}", "one={1}"], ["--as", "one"], "one: names two builds"),
    (["before={0}", "after={1}"], [], "a local build; say what it is, as in --as pytorch"),
    (["before={0}", "after={1}"], ["--as", "nobody"], "unknown framework nobody"),
    (["before={0}", "after={1}"], ["--as", "one==1.0"], "--as one==1.0: name the framework alone"),
    (["before={0}", "after=no/python"], ["--as", "one"], "is not a Python interpreter that runs"),
    (["one", "one"], ["--as", "one"], "--as one: is for local builds, as in A=/path/python"),
    (["before={0}:turbo", "after={1}"], ["--as", "one"], "is not a Python interpreter that runs"),
])
def test_local_builds_that_cannot_be_told_apart_end_with_2(dlbench, stand_in, builds, tmp_path, sides, more, said):
    stand_in(one="reference:Simulated")
    alias = tmp_path / "alias"
    alias.symlink_to(builds[0])
    sides = [side.format(*builds, alias) for side in sides]
    code, _, error = dlbench("compare", *sides, *more, "--suite", "small.yaml")
    assert (code, said in error, "Traceback" in error) == (2, True, False)


def test_a_release_beside_a_local_build_and_one_build_with_itself_are_compared(dlbench, stand_in, builds):
    stand_in(one="reference:Simulated")
    for sides in (["one", f"mine={builds[0]}:tuned"], [f"mine={builds[0]}"] * 2):
        code, out, error = dlbench("compare", *sides, "--as", "one", "--suite", "small.yaml", "--dry-run")
        assert (code, error, "2 trials" in out) == (0, "", True)
