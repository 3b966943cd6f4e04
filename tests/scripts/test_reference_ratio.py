"""scripts/reference_ratio.py: both sides take turns, and a ratio below 0.98 is called slower."""

import ast
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.audit import audit
from harness.errors import WrongUse
from scripts import reference_ratio
from scripts.reference_ratio import LOOPS, NETWORKS, TIERS, run_loop

LOOP = """
import json, sys
assert sys.argv[1:9] == "--batch 4 --precision fp32 --tier stock --device cpu".split(), sys.argv
for seconds in (2.0, 2.2):
    print(json.dumps({"steps": 10, "seconds": seconds * FACTOR}), flush=True)
"""
SHORT = ["--frameworks", "reference", "--networks", "tiny_fcn", "--batches", "4",
         "--tiers", "stock", "--device", "cpu", "--windows", "2", "--window-seconds", "0.002",
         "--window-steps", "1", "--interpreter", f"reference={sys.executable}"]


def run(tmp_path, loop, processes=1):
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "reference_tiny_fcn.py").write_text(loop)
    code = reference_ratio.main([*SHORT, "--processes", str(processes), "--out",
                                 str(tmp_path / "out"), "--loops", str(tmp_path / "loops")])
    return code, pd.read_csv(tmp_path / "out" / "reference_ratios.csv", keep_default_na=False)


def test_a_row_takes_turns_with_its_loop_and_both_are_recorded(tmp_path):
    code, found = run(tmp_path, LOOP.replace("FACTOR", "1"), processes=3)
    row = found.iloc[0]
    assert (code, row["verdict"], row["processes"]) == (0, "as fast as its loop", 3)
    assert row["loop_seconds"] == pytest.approx(0.21)
    assert row["ratio"] == pytest.approx(0.21 / row["seconds"], rel=1e-6)
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    loops = pd.read_csv(tmp_path / "out" / "loops.csv")
    assert loops["process"].tolist() == [0, 0, 1, 1, 2, 2]
    shown = reference_ratio.table(reference_ratio.ratios(tmp_path / "out"))
    assert list(shown.columns[-1].cells) == ["as fast as its loop"]
    assert audit.audit(tmp_path / "out") == []


def test_a_row_below_its_loop_is_called_slower(tmp_path):
    code, found = run(tmp_path, LOOP.replace("FACTOR", "1e-9"))
    assert (code, found["verdict"].tolist()) == (1, ["slower than its loop"])
    assert found["ratio_low"].tolist() == [""]


def test_a_loop_that_fails_is_a_reason_and_no_ratio(tmp_path):
    code, found = run(tmp_path, "raise SystemExit('no flax here')")
    assert (code, found["ratio"].tolist()) == (1, [""])
    assert found["reason"].tolist() == ["crashed: the loop ended with 1: no flax here"]


@pytest.mark.parametrize(("said", "reason"), [
    ("", "protocol: the loop timed no window"), ("x", "protocol: the loop answered 'x"),
    (json.dumps({"steps": 3}), "protocol: the loop answered")])
def test_what_is_no_window_is_refused(tmp_path, said, reason):
    windows, found = run_loop([sys.executable, "-c", f"print({said!r})"], tmp_path / "log")
    assert windows == [] and found.startswith(reason)


def test_a_network_without_a_loop_is_wrong_use_before_anything_runs(tmp_path, capsys):
    code = reference_ratio.main([*SHORT, "--loops", str(tmp_path), "--out", str(tmp_path / "out")])
    assert code == 2 and not (tmp_path / "out").exists()
    assert "no loop of reference stock, tiny_fcn: choose other --networks" in \
        capsys.readouterr().err


def test_every_framework_has_a_loop_of_each_network_and_tier():
    for prefix, tiers in TIERS.values():
        for name in ("resnet50", "fcn5", *(each[0] for each in NETWORKS.values())):
            source = (LOOPS / f"{prefix}_{name}.py").read_text()
            call = next(line for line in source.splitlines() if line.startswith("options = "))
            known = ast.literal_eval(call.partition("arguments(")[2].partition(")")[0] + ")")
            assert set(tiers.values()) <= set(known)


def test_no_loop_imports_dlbench():
    for file in LOOPS.glob("*.py"):
        names = {name.split(".")[0] for node in ast.walk(ast.parse(file.read_text()))
                 for name in ([each.name for each in node.names]
                              if isinstance(node, ast.Import) else
                              [node.module or ""] if isinstance(node, ast.ImportFrom) else [])}
        assert names & {"networks", "runners", "harness", "analysis", "scripts"} == set(), file


def test_windows_double_until_they_are_long_enough(tmp_path):
    program = (f"import sys, time; sys.path.insert(0, {str(LOOPS)!r}); import windows; "
               "options = windows.arguments(('stock',)); print('noise'); "
               "windows.measure(lambda steps: time.sleep(0.001 * steps), options)")
    answered, reason = run_loop(
        [sys.executable, "-c", program, "--batch", "1", "--seconds", "0.05", "--window", "0.003",
         "--steps", "10"], Path(tmp_path) / "log")
    assert reason == "" and {each["steps"] for each in answered} == {16}
    assert sum(each["seconds"] for each in answered) >= 0.05


def test_a_bad_interpreter_is_wrong_use(tmp_path):
    with pytest.raises(WrongUse):
        reference_ratio.named(["torch"])
