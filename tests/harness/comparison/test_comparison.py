"""Comparisons of two sides, live on a made-up clock and recorded: what is slower is found, what is the same is not."""

import csv
import json
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.campaign import campaign
from harness.cli.comparisons.rules import share_of
from harness.comparison.plan import Request, prepare
from harness.comparison.sides import split
from harness.environments import recipes
from harness.errors import WrongUse
from tests.analysis.conftest import make_records

SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 5, "windows": 3, "window_seconds": 0.01,
         "data": "host", "peaks": False, "telemetry": False}


@pytest.fixture(autouse=True)
def suite_of_seconds(monkeypatch, tmp_path):
    """A folder of its own, with a small suite."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))


@pytest.fixture
def sides(stand_in, made_up_clock):
    return stand_in(same="reference:Simulated", slow="reference:Slower5", slower="reference:Slower50", broken="processes.wire:Raises",
                    nesterov="reference:Nesterov")


def live(dlbench, a, b, *words):
    code, out, error = dlbench("compare", a, b, *words, "--suite", "small.yaml", "--out", "out")
    assert error == ""
    with Path("out/compare.csv").open() as file:
        return code, out, list(csv.DictReader(file))


def test_a_release_against_itself_shows_no_difference(dlbench, sides):
    code, out, (row,) = live(dlbench, "same", "same", "--fail-on-regression", "5%")
    assert (code, row["verdict"], row["losses"]) == (0, "no difference seen", "agree")
    assert (row["processes_a"], row["processes_b"]) == ("5", "5")
    assert {row["trial_a"][-2:], row["trial_b"][-2:]} == {"-A", "-B"}
    assert "this comparison gave none; 5 % of comparisons would by chance. This machine sees" in out
    assert "No regression beyond 5 % is shown." in out
    assert sides == ["same"]  # one environment serves both sides


@pytest.fixture
def kept(dlbench, sides, tmp_path_factory):
    """Lend a comparison in `out`: one campaign of each two sides serves several tests."""
    def lend(a, b, *words):
        name = f"{a}-{b}"
        if name not in COMPARED:
            answer = live(dlbench, a, b, *words)
            COMPARED[name] = answer, shutil.copytree("out", tmp_path_factory.mktemp("compared") / name)
        answer, folder = COMPARED[name]
        shutil.copytree(folder, "out", dirs_exist_ok=True)
        return answer
    return lend


COMPARED = {}


def test_both_sides_are_interleaved_in_every_round(kept):
    kept("same", "slow")
    with Path("out/processes.csv").open() as file:
        rows = list(csv.DictReader(file))
    rounds = [[row["trial"].split("-")[0] for row in rows[start:start + 2]] for start in range(0, 10, 2)]
    assert [sorted(each) for each in rounds] == [["same", "slow"]] * 5
    assert len({tuple(each) for each in rounds}) == 2  # in an order that changes


def test_a_slowdown_of_five_per_cent_is_found(dlbench, sides, kept):
    code, _, (row,) = kept("same", "slow")
    assert (code, row["verdict"]) == (0, "slower")
    assert 1.02 < float(row["ratio_low"]) < 1.05 < float(row["ratio_high"]) < 1.08
    Path("out").rename("before")
    code, _, (row,) = live(dlbench, "slow", "same")
    assert (code, row["verdict"]) == (0, "faster")


@pytest.mark.parametrize(("threshold", "code", "said"), [
    ("3%", 1, "Regression beyond 3 %: tiny_fcn, batch 4 (1.484 (1.462 to 1.516))."),
    ("0.6", 0, "No regression beyond 60 % is shown."),
    ("50%", 3, "A regression beyond 50 % cannot be excluded: tiny_fcn, batch 4 (up to 1.5"),
])
def test_a_shown_regression_ends_with_1_and_a_hidden_one_with_3(dlbench, kept, threshold, code, said):
    as_it_ran, _, (row,) = kept("same", "slower", "--fail-on-regression", "3%")
    assert (as_it_ran, row["verdict"]) == (1, "slower")
    found, out, error = dlbench("compare", "out", "--fail-on-regression", threshold)
    assert (found, error) == (code, "")
    assert said in out


def test_a_side_that_trains_another_network_is_not_compared_and_ends_with_1(dlbench, sides):
    code, out, (row,) = live(dlbench, "same", "nesterov", "processes=3")
    reason = "B: not verified: different from the reference: "
    assert (code, row["verdict"], row["ratio"], row["refusal"]) == (1, "not compared", "", "different")
    assert row["reason"].startswith(reason) and reason in out


def test_a_calibration_states_false_alarms_and_the_smallest_visible_difference(dlbench, sides):
    code, out, rows = live(dlbench, "same", "same", "processes=3", "--repeats", "2")
    assert (code, [row["repeat"] for row in rows]) == (0, ["0", "1"])
    assert [row["processes_a"] for row in rows] == ["3"] * 2
    assert {row["verdict"] for row in rows} == {"no difference seen"}
    assert "0 of 2 comparisons gave one; 5 % of comparisons would" in out
    assert "This machine sees differences from " in out


def test_a_folder_is_judged_again_from_its_records_alone(dlbench, kept):
    kept("same", "slow")
    files = ["compare.csv", "compare.md", "compare.html", "plots/ratios.svg"]
    before = {file: Path("out", file).read_bytes() for file in files}
    for file in files:
        Path("out", file).unlink()
    assert dlbench("compare", "out")[0] == 0
    assert {file: Path("out", file).read_bytes() for file in files} == before


def test_a_comparison_that_was_stopped_goes_on(dlbench, kept):
    _, _, whole = kept("same", "slow")
    lines = Path("out/processes.csv").read_text().splitlines(keepends=True)
    Path("out/processes.csv").write_text("".join(lines[:-3]))
    _, _, (row,) = live(dlbench, "same", "slow", "--resume")
    assert (row["processes_a"], row["processes_b"]) == ("5", "5")
    assert float(row["ratio"]) == pytest.approx(float(whole[0]["ratio"]), rel=0.02)


@pytest.mark.parametrize("words", [["--out", "a folder"], ["--resume", "--out=a folder"]])
def test_an_interrupted_comparison_says_how_to_go_on(dlbench, sides, monkeypatch, words):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run", interrupt)
    code, out, error = dlbench("compare", "same", "slow", "--suite", "small.yaml", *words)
    place = shlex.join(word for word in words if word != "--resume")
    assert (code, error) == (1, "")
    assert out.endswith(f"Go on with: dlbench compare same slow --suite small.yaml {place} --resume\n")


@pytest.fixture
def recorded(tmp_path):
    def make(name, **machine):
        made = make_records(networks=("fcn5",))
        made.meta["name"] = name
        made.meta["machine"] = {**made.meta["machine"], **machine}
        return str(made.write(tmp_path / "records" / name))
    return make


def test_recorded_campaigns_are_matched_by_workload_and_framework(dlbench, recorded):
    code, out, error = dlbench("compare", recorded("old"), recorded("new"))
    assert (code, error) == (0, "")
    assert "B against A: 6 no difference seen." in out


def test_other_hardware_is_refused_unless_it_is_meant(dlbench, recorded):
    old, new = recorded("old"), recorded("new", cpu={"model": "Another CPU", "logical": 2})
    code, _, error = dlbench("compare", old, new)
    assert (code, error.strip()) == (2, (
        "dlbench: old and new were measured on different hardware (processor: Example CPU @ 2.10GHz and Another CPU): "
        "a ratio would compare the machines; pass --across-machines to do so"))
    assert dlbench("compare", old, new, "--across-machines")[0] == 0


def test_what_is_meant_for_live_comparisons_is_refused_of_recorded_ones(dlbench, recorded):
    code, _, error = dlbench("compare", recorded("old"), recorded("new"), "--repeats", "3", "batch=4")
    assert (code, error.strip()) == (2, "dlbench: --repeats, KEY=VALUE: only for live comparisons; recorded campaigns do "
                                        "not change")


@pytest.mark.parametrize(("words", "message"), [
    (["same", "nobody"], "dlbench: unknown framework nobody; "),
    (["same", "same:turbo"], "same:turbo: unknown tuning turbo"),
    (["same", "slow", "--repeats", "3"], "--repeats: calibrates a machine with a release against itself; same and slow are two"),
    (["same", "slow", "--resume"], "--resume: name the comparison's folder with --out DIR"),
    (["same", "slow", "--fail-on-regression", "much"], "--fail-on-regression much: write a share such as 3% or 0.03"),
    (["no/such/folder", "slow"], "no/such/folder/campaign.json: no such file"),
    (["same", "same==0.0.1:stock", "--interpreter", f"same={sys.executable}"], "name that release, or another interpreter"),
])
def test_wrong_use_ends_with_2_and_one_message(dlbench, sides, words, message):
    code, _, error = dlbench("compare", *words, "--suite", "small.yaml")
    assert (code, message in error, "Traceback" in error) == (2, True, False)


def test_an_ordinary_campaign_is_no_comparison(dlbench, recorded):
    code, _, error = dlbench("compare", recorded("old"))
    assert (code, "holds one campaign, not a comparison" in error) == (2, True)


def test_two_releases_on_a_side_are_refused_before_anything_starts(dlbench, sides):
    known = recipes.load("same").releases
    known["0.0.1"] = known[np.__version__]
    code, _, error = dlbench("compare", f"same=={np.__version__},same==0.0.1", "same", "--suite", "small.yaml", "--out", "out")
    assert (code, Path("out").exists(), sides) == (2, False, [])
    assert error.startswith(f"dlbench: same=={np.__version__},same==0.0.1: tiny_fcn, batch 4 is there twice (same-")
    assert error.endswith("): compare one release of each framework at a time\n")


def test_batches_that_differ_only_over_all_devices_are_compared_live(dlbench, stand_in):
    stand_in(one="processes.ranks")
    words = ["devices=2", "scaling=strong", "batch=4,5", "processes=1"]
    code, out, rows = live(dlbench, "one", "one", *words)
    assert [(row["batch"], row["global_batch"], row["verdict"]) for row in rows] == [
        ("2", "4", "too few processes to tell"), ("2", "5", "not compared")]
    assert code == 3 and "Not compared: tiny_fcn, batch 2, global batch 5: A: unsupported: a global batch of 5 does not" in out


def test_a_tuning_is_a_variant(sides, tmp_path):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    prepared = prepare(Request("same:stock", "same:tuned", tmp_path / "small.yaml"))
    assert [(trial.tuning, trial.side) for trial in prepared.trials] == [("stock", "A"), ("tuned", "B")]
    assert json.loads(prepared.suite.model_dump_json())["tunings"] == ["stock", "tuned"]
    assert prepared.comparison == {"a": "same:stock", "b": "same:tuned", "repeats": 1}


@pytest.mark.parametrize(("word", "found"), [("jax", ("jax", "")), ("jax==0.9.2:tuned", ("jax==0.9.2", "tuned"))])
def test_a_side_is_a_release_and_a_tuning(word, found):
    assert split(word) == found


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.05", 0.05), ("0%", 0.0)])
def test_a_threshold_is_a_share(text, share):
    assert share_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["-3%", "three", "5000%"])
def test_a_threshold_that_is_no_share_is_wrong_use(text):
    with pytest.raises(WrongUse, match="write a share such as"):
        share_of(text)


def test_interpreters_may_be_named_by_release(stand_in, dlbench, made_up_clock):
    stand_in(one="reference:Simulated")
    release = np.__version__
    code, _, (row,) = live(dlbench, f"one=={release}", "one", "processes=3", "--interpreter", f"one=={release}={sys.executable}")
    assert (code, row["verdict"]) == (0, "no difference seen")
