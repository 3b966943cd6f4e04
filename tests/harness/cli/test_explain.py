"""Which two trials `dlbench explain` means, and what it says to a person who meant others."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.explain import choose, names, parse_side
from harness.errors import WrongUse

RECORDED = str(Path(__file__).parents[2] / "analysis" / "recorded" / "h200-fcn5")
TRIALS = [{"trial": f"{framework}-{release}-{network}-{precision}", "framework": framework, "release": release, "network": network,
           "batch": 64, "precision": precision, "tuning": "stock", "devices": 1}
          for framework, release in (("jax", "0.9.2"), ("jax", "0.10.2"), ("pytorch", "2.11.0"))
          for network in ("fcn5", "lstm32") for precision in ("fp32", "tf32")]


@pytest.mark.parametrize(("word", "said"), [
    ("jax", {"framework": "jax"}), ("jax==0.9.2", {"framework": "jax", "release": "0.9.2"}),
    ("jax:tuned", {"framework": "jax", "tuning": "tuned"}),
    ("jax==0.9.2:tuned:tf32", {"framework": "jax", "release": "0.9.2", "tuning": "tuned", "precision": "tf32"}),
])
def test_a_word_names_framework_release_tuning_and_precision(word, said):
    assert parse_side(word) == said


def test_what_is_no_tuning_and_no_precision_is_refused_with_a_guess():
    with pytest.raises(WrongUse, match=r"jax:tunde: tunde is neither a tuning nor a precision.*tuned"):
        parse_side("jax:tunde")


@pytest.mark.parametrize(("word", "options", "trial"), [
    ("pytorch", {"network": "fcn5", "precision": "tf32"}, "pytorch-2.11.0-fcn5-tf32"),
    ("pytorch:fp32", {"network": "fcn5", "batch": "64"}, "pytorch-2.11.0-fcn5-fp32"),
    ("jax==0.9.2:tf32", {"network": "lstm32", "precision": "fp32"}, "jax-0.9.2-lstm32-tf32"),  # the word is more particular
    ("jax-0.10.2-lstm32-fp32", {"network": "fcn5"}, "jax-0.10.2-lstm32-fp32"),
])
def test_the_one_trial_is_found(word, options, trial):
    assert choose(TRIALS, word, options)["trial"] == trial


def test_several_are_refused_with_what_tells_them_apart():
    with pytest.raises(WrongUse, match="jax: 2 trials have network fcn5, precision fp32, framework jax; "
                                       r"choose among release: 0\.10\.2, 0\.9\.2, or give"):
        choose(TRIALS, "jax", {"network": "fcn5", "precision": "fp32"})


SEVERAL = [{"trial": f"pytorch-{strategy}-{whole}", "framework": "pytorch", "network": "fcn5", "batch": 31, "devices": 2,
            "strategy": strategy, "global_batch": whole, "status": "planned" if whole == 62 else "unsupported"}
           for strategy in ("ddp", "ring") for whole in (62, 63)]


def test_strategies_are_chosen_by_their_option_and_what_was_refused_is_not_meant():
    with pytest.raises(WrongUse, match="2 trials have devices 2, framework pytorch; choose among strategy: ddp, ring, or give"):
        choose(SEVERAL, "pytorch", {"devices": "2"})
    assert choose(SEVERAL, "pytorch", {"devices": "2", "strategy": "ring"})["trial"] == "pytorch-ring-62"


def test_what_no_option_chooses_is_listed_by_whole_names():
    with pytest.raises(WrongUse, match=r"2 trials have .*; give the whole name of one: pytorch-ddp-63; pytorch-ddp-65$"):
        choose([SEVERAL[1], SEVERAL[1] | {"trial": "pytorch-ddp-65", "global_batch": 65}], "pytorch", {})
    sides = [SEVERAL[0] | {"trial": f"pytorch-{side}", "side": side} for side in "AB"]
    with pytest.raises(WrongUse, match=r"have framework pytorch; give the whole name of one: pytorch-A; pytorch-B$"):
        choose(sides, "pytorch", {})


def test_none_is_refused_with_what_there_is():
    with pytest.raises(WrongUse, match=r"jax: no trial has network vgg, framework jax; there are: jax-0\.9\.2-fcn5-fp32; "):
        choose(TRIALS, "jax", {"network": "vgg"})


def test_sides_are_called_by_what_tells_them_apart():
    one = TRIALS[0]
    assert names(one, TRIALS[-3] | {"batch": 128}) == ("jax batch 64 fp32", "pytorch batch 128 tf32")
    assert names(one, one | {"release": "0.10.2"}) == ("jax 0.9.2", "jax 0.10.2")
    assert names(one, one) == ("jax A", "jax B")
    two = one | {"devices": 2, "strategy": "ring"}
    assert names(one | {"strategy": ""}, two) == ("jax 1 device", "jax 2 devices ring")


def run(monkeypatch, capsys, *words):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["dlbench", "explain", *words])
    try:
        main.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    return code, *capsys.readouterr()


def test_a_gap_is_printed_and_written(monkeypatch, capsys, tmp_path):
    sides = ["--a", "jaxplain", "--b", "pytorch", "--network", "fcn5"]
    code, out, _ = run(monkeypatch, capsys, RECORDED, *sides, "--out", str(tmp_path))
    assert code == 0
    assert "A: jaxplain, B: pytorch" in out and "74 % of the gap is arithmetic: jaxplain computes" in out
    assert out.rstrip().endswith(str(tmp_path / "explain.html"))
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        "explain.csv", "explain.html", "explain.md", "explain.png", "explain.svg", "explain_details.csv"]


def test_two_campaigns_of_one_machine_may_each_hold_a_side(monkeypatch, capsys, tmp_path):
    code, out, _ = run(monkeypatch, capsys, RECORDED, RECORDED, "--a", "jax", "--b", "pytorch", "--out", str(tmp_path))
    assert code == 0 and "A step of pytorch takes 0.489 ms longer than one of jax" in out


def test_a_strategy_has_an_option(monkeypatch, capsys):
    code, _, error = run(monkeypatch, capsys, RECORDED, "--a", "jax", "--b", "pytorch", "--strategy", "ring")
    assert (code, "jax: no trial has strategy ring, framework jax; there are: " in error) == (2, True)


@pytest.mark.parametrize(("words", "error"), [
    ([RECORDED, "--a", "jax", "--b", "tensorflow"], "tensorflow: no trial has framework tensorflow"),
    ([RECORDED, RECORDED, RECORDED, "--a", "jax", "--b", "jax"], "name one campaign, or A's and B's"),
    (["missing", "--a", "jax", "--b", "jax"], "missing/campaign.json: no such file"),
])
def test_wrong_use_is_one_message_and_2(monkeypatch, capsys, words, error):
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 2 and error in err


def test_a_call_is_not_explained_by_a_step(monkeypatch, capsys, tmp_path):
    pages = [json.loads((Path(RECORDED) / "campaign.json").read_text()) for _ in range(2)]
    for trial in pages[1]["trials"]:
        trial["mode"] = "inference"
    folders = []
    for name, page in zip(("trains", "infers"), pages, strict=True):
        folders.append(str(shutil.copytree(RECORDED, tmp_path / name)))
        (tmp_path / name / "campaign.json").write_text(json.dumps(page))
    code, _, error = run(monkeypatch, capsys, *folders, "--a", "jax", "--b", "pytorch")
    assert (code, "A has mode training and B has mode inference: explain compares steps of the same mode" in error) == (2, True)
