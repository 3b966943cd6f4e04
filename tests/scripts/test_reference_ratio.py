"""scripts/reference_ratio.py: both sides take turns, and a ratio below 0.98 is called slower."""

import ast
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.audit import audit
from analysis.statistics.bootstrap import Estimate
from harness.cli.main import app
from harness.environments import store
from harness.errors import WrongUse
from scripts import reference_ratio
from scripts.reference_ratio import LOOPS, NETWORKS, RUNNERS, TIERS, Loop
from tests.conftest import environment_of

# A fake clock, so that a step takes exactly as long as the test says.
LOOP = """
import time
now = [0.0]
time.perf_counter = lambda: now[0]

def build(options):
    assert (options.batch, options.precision, options.device) == (4, "fp32", "cpu"), options
    return (0.21 * FACTOR,)
"""
TRAINING = """
TIERS = ("stock",)

def prepare(seconds, options):
    from tiny_fcn import now
    def run(steps):
        now[0] += seconds * steps
    return run
"""
SHORT = ["--frameworks", "reference", "--networks", "tiny_fcn", "--batches", "4",
         "--tiers", "stock", "--device", "cpu", "--windows", "2", "--window-seconds", "0.002",
         "--window-steps", "1", "--seconds", "0.3", "--interpreter", f"reference={sys.executable}"]


def run(tmp_path, loop, processes=1, *more):
    folder = tmp_path / "loops" / "reference"
    folder.mkdir(parents=True)
    (folder / "tiny_fcn.py").write_text(loop)
    (folder / "training.py").write_text(TRAINING)
    code = reference_ratio.main([*SHORT, "--processes", str(processes), "--out",
                                 str(tmp_path / "out"), "--loops", str(tmp_path / "loops"), *more])
    return code, pd.read_csv(tmp_path / "out" / "reference_ratios.csv", keep_default_na=False)


def test_a_row_takes_turns_with_its_loop_and_both_are_recorded(tmp_path):
    code, found = run(tmp_path, LOOP.replace("FACTOR", "1"), processes=3)
    row = found.iloc[0]
    assert (code, row["verdict"], row["processes"]) == (0, "not slower than its loop", 3)
    assert row["loop_seconds"] == pytest.approx(0.21)
    assert row["ratio"] == pytest.approx(0.21 / row["seconds"], rel=1e-6)
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    loops = pd.read_csv(tmp_path / "out" / "loops.csv")
    assert loops["process"].tolist() == [0, 0, 1, 1, 2, 2]
    raw = json.loads((tmp_path / "out" / "raw_times.json").read_text())
    assert [[len(side) for side in (each["loop"], each["ours"])] for each in raw.values()] \
        == [[3, 3]]
    shown = reference_ratio.table(reference_ratio.ratios(tmp_path / "out", raw))
    assert CliRunner().invoke(app, ["report", str(tmp_path / "out")]).exit_code == 0
    listed = (tmp_path / "out" / "report.md").read_text().partition("## Beside reference loops")[2]
    assert "| 3 | not slower than its loop |" in listed.partition("##")[0]
    # A busy processor can make windows of 2 ms look as if a synchronisation were missing.
    assert next(iter(shown.columns[-1].cells)).startswith("not slower than its loop")
    assert audit.audit(tmp_path / "out") == []
    ratios = tmp_path / "out" / "reference_ratios.csv"
    ratios.write_text(ratios.read_text().replace("loop_seconds", "seconds_of_the_loop"))
    damaged = CliRunner().invoke(app, ["report", str(tmp_path / "out")])
    assert "reference_ratios.csv: no column loop_seconds" in str(damaged.exception)


def test_a_row_below_its_loop_is_called_slower(tmp_path):
    code, found = run(tmp_path, LOOP.replace("FACTOR", "1e-9"))
    assert (code, found["verdict"].tolist()) == (1, ["slower than its loop"])
    assert found["ratio_low"].tolist() == [""]


def test_an_interval_that_holds_the_limit_says_neither_slower_nor_as_fast():
    verdicts = [reference_ratio._verdict(Estimate(*each, 3)) for each in [
        (0.9, 0.5, 3.0), (1.1, 0.97, 1.3), (0.9, 0.85, 0.97), (0.99, 0.98, 1.0), (0.97, np.nan, np.nan)]]
    told = "too noisy to tell: its interval holds 0.98"
    assert verdicts == [told, told, "slower than its loop", "not slower than its loop", "slower than its loop"]


def test_loops_get_ready_side_by_side_and_none_is_timed_before_all_are_ready(tmp_path):
    told = tmp_path / "told"
    slow = f"""
import time
def note(word):
    with open({str(told)!r}, "a") as file: print(word, file=file)
class Seconds(float):
    steps = 0
    def __mul__(self, steps):
        self.steps += 1
        note({{1: "ready", 2: "timed"}}.get(self.steps, "window"))
        return float(self) * steps
def build(options):
    time.sleep(0.5)
    return (Seconds(0.21),)
now = [0.0]
time.perf_counter = lambda: now[0]
"""
    code, found = run(tmp_path, slow, 3, "--prepare-jobs", "3")
    said = [word for word in told.read_text().split() if word != "window"]
    assert code == 0 and found["processes"].tolist() == [3] and said == 3 * ["ready"] + 3 * ["timed"]


def test_a_loop_that_fails_is_a_reason_and_no_ratio(tmp_path):
    code, found = run(tmp_path, "raise SystemExit('no flax here')")
    assert (code, found["ratio"].tolist()) == (1, [""])
    assert found["reason"].tolist() == ["crashed: the loop ended with 1: no flax here"]


def test_a_loop_that_lacked_memory_beside_others_runs_again_alone(tmp_path):
    beside = tmp_path / "beside"
    short = f"""
import pathlib
beside = pathlib.Path({str(beside)!r})
if not beside.exists():
    beside.touch()
    import sys
    sys.exit("AcceleratorError: CUDA error: out of memory\\nCompile with `TORCH_USE_CUDA_DSA`.")
""" + LOOP.replace("FACTOR", "1")
    code, found = run(tmp_path, short, 3, "--prepare-jobs", "3")
    assert (code, found["reason"].tolist(), found["processes"].tolist()) == (0, [""], [3])
    assert set(pd.read_csv(tmp_path / "out" / "loops.csv")["process"]) == {0, 1, 2}


def test_a_loop_takes_no_more_of_the_gpus_memory_than_it_needs(tmp_path, monkeypatch):
    asks = [sys.executable, "-c", "import os; raise SystemExit(os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] + ' '"
            " + os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'])"]
    assert Loop(asks, tmp_path / "log").windows()[1].endswith(": true false")
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert Loop(asks, tmp_path / "log").windows()[1].endswith(": false false")


def test_an_interruption_keeps_the_ratio_of_what_was_measured(tmp_path, monkeypatch, capsys):
    recorded, whole = [], reference_ratio.TakingTurns.done

    def interrupted(turns, outcome, number, total):
        whole(turns, outcome, number, total)
        recorded.append(number)
        if number == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(reference_ratio.TakingTurns, "done", interrupted)
    code, found = run(tmp_path, LOOP.replace("FACTOR", "1"), 5)
    assert (code, found["processes"].tolist(), len(recorded)) == (130, [3], 3)
    assert "interrupted; what was measured so far" in capsys.readouterr().err


@pytest.mark.parametrize(("said", "reason"), [
    ("", "protocol: the loop timed no window"), ("x", "protocol: the loop answered 'x"),
    (json.dumps({"steps": 3}), "protocol: the loop answered")])
def test_what_is_no_window_is_refused(tmp_path, said, reason):
    windows, found = Loop([sys.executable, "-c", f"print('ready'); print({said!r})"], tmp_path / "log").windows()
    assert windows == [] and found.startswith(reason)


@pytest.mark.parametrize("hangs", ["time.sleep(60)", "print('ready', flush=True); time.sleep(60)"])
def test_a_loop_that_hangs_is_ended_and_its_wait_for_a_turn_does_not_count(tmp_path, monkeypatch, hangs):
    monkeypatch.setattr(reference_ratio, "LIMIT_SECONDS", 1)
    assert Loop([sys.executable, "-c", f"import time; {hangs}"], tmp_path / "log").windows() == (
        [], "timed_out: the loop took more than 1 s")
    patient = Loop([sys.executable, "-c", "print('ready', flush=True); input(); print('{\"steps\": 1, \"seconds\": 2}')"],
                   tmp_path / "log")
    patient.wait()
    time.sleep(1.5)
    assert patient.windows() == ([{"steps": 1, "seconds": 2.0}], "")


def test_a_loop_that_is_not_wanted_is_ended(tmp_path):
    unwanted = Loop([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    unwanted.end()
    unwanted.timer.join()
    assert unwanted.process.returncode and not unwanted.timer.is_alive()


def test_a_network_without_a_loop_is_wrong_use_before_anything_runs(tmp_path, capsys):
    code = reference_ratio.main([*SHORT, "--loops", str(tmp_path), "--out", str(tmp_path / "out")])
    assert code == 2 and not (tmp_path / "out").exists()
    assert "no loop of reference stock, tiny_fcn: choose other --networks" in \
        capsys.readouterr().err


def assigned(file, name):
    return next(ast.literal_eval(node.value) for node in ast.parse(file.read_text()).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)


def test_every_framework_has_a_loop_of_each_network_and_tier():
    for folder, tiers in TIERS.values():
        assert set(tiers.values()) <= set(assigned(LOOPS / folder / "training.py", "TIERS"))
        for name in ("resnet50", "alexnet", "fcn5", "gpt2_small", "vit_b16",
                     *(each[0] for each in NETWORKS.values())):
            assert "def build(options):" in (LOOPS / folder / f"{name}.py").read_text()
        if (trained := LOOPS / folder / "inference.py").exists():
            assert assigned(trained, "TIERS") == assigned(LOOPS / folder / "training.py", "TIERS")
    assert [folder for folder in ("pytorch", "jax", "keras") if (LOOPS / folder / "inference.py").exists()] == ["pytorch", "jax", "keras"]
    for framework, runner in RUNNERS.items():
        folder, tiers = TIERS[framework]
        assert tuple(tiers.values()) == assigned(LOOPS / folder / f"{runner}.py", "TIERS")


def test_inference_without_a_loop_is_wrong_use_and_a_trained_network_is_timed_call_by_call(tmp_path, capsys):
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "tiny_fcn.py").write_text(LOOP)
    (tmp_path / "reference" / "training.py").write_text(TRAINING)
    wanted = [*SHORT, "--loops", str(tmp_path), "--mode", "inference", "--frameworks", "onnxruntime", "--networks", "resnet50"]
    assert reference_ratio.main([*wanted, "--interpreter", f"onnxruntime={environment_of('onnxruntime').interpreter}"]) == 2
    assert "onnxruntime_session.py: no loop of onnxruntime stock, resnet50" in capsys.readouterr().err
    command = [str(environment_of("pytorch").interpreter), str(LOOPS / "loop.py"), str(LOOPS / "pytorch" / "lstm.py"), "--mode",
               "inference", "--batch", "1", "--device", "cpu", "--seconds", "0.02", "--window", "0.01", "--words", "4"]
    windows, reason = Loop(command, tmp_path / "log").windows()
    assert windows and not reason and all(window["seconds"] > 0 for window in windows)
    (windows, reason) = Loop([*command, "--mode", "training", "--precision", "fp16"], tmp_path / "log").windows()
    assert windows == [] and reason.endswith("--precision fp16: write --mode inference")


@pytest.mark.parametrize(("framework", "packages"), [("tensorflow", []), ("onnxruntime", ["onnx==1.23.2", "onnxruntime==1.32.0"])])
def test_loops_of_keras_and_onnx_runtime_time_a_trained_network(tmp_path, framework, packages):
    folder, _ = TIERS[framework]
    environment = environment_of("pytorch" if folder == "pytorch" else framework)
    if packages:
        environment = store.extended(environment, packages, print)
    command = [str(environment.interpreter), str(LOOPS / "loop.py"), str(LOOPS / folder / "lstm.py"), "--batch", "2",
               "--mode", "inference", "--runner", RUNNERS.get(framework, "inference"), "--device", "cpu",
               "--seconds", "0.02", "--window", "0.01", "--words", "4"]
    windows, reason = Loop(command, tmp_path / "log").windows()
    assert windows and not reason and all(window["seconds"] > 0 for window in windows), reason
    _, reason = Loop([*command, "--precision", "int8"], tmp_path / "log").windows()
    assert "--precision" in reason


def test_no_loop_imports_dlbench():
    files = [*LOOPS.rglob("*.py")]
    for file in files:
        names = {name.split(".")[0] for node in ast.walk(ast.parse(file.read_text()))
                 for name in ([each.name for each in node.names]
                              if isinstance(node, ast.Import) else
                              [node.module or ""] if isinstance(node, ast.ImportFrom) else [])}
        assert names & {"networks", "runners", "harness", "analysis", "scripts"} == set(), file
    assert len(files) > 12


def loop(folder, prepare, *more):
    """Run a loop whose training.py has `prepare`."""
    (folder / "training.py").write_text(f"TIERS = ('stock',)\nprepare = {prepare}")
    (folder / "network.py").write_text("print('noise')\ndef build(options): return ()")
    return Loop([sys.executable, str(LOOPS / "loop.py"), str(folder / "network.py"),
                 "--batch", "1", *more], folder / "log").windows()


def test_windows_double_until_they_are_long_enough(tmp_path):
    answered, reason = loop(
        tmp_path, "lambda options: lambda steps: __import__('time').sleep(0.001 * steps)",
        "--seconds", "0.05", "--window", "0.003", "--steps", "10")
    assert reason == "" and {each["steps"] for each in answered} == {16}
    assert sum(each["seconds"] for each in answered) >= 0.05


def test_a_loop_refuses_a_tier_that_it_does_not_have(tmp_path):
    answered, reason = loop(tmp_path, "None", "--tier", "tuned")
    assert answered == [] and reason.endswith("no tier tuned: choose from ('stock',)")


def test_a_bad_interpreter_is_wrong_use(tmp_path):
    with pytest.raises(WrongUse):
        reference_ratio.named(["torch"])


@pytest.mark.parametrize(("pairs", "said"), [
    ("reference", "--pairs reference: write each as FRAMEWORK/NETWORK"),
    ("reference/tiny_fcn", "no loop of reference stock, tiny_fcn: choose other")])
def test_pairs_stand_in_the_place_of_frameworks_and_networks(tmp_path, capsys, pairs, said):
    code = reference_ratio.main([*SHORT, "--networks", "tiny_cnn", "--pairs", pairs,
                                 "--loops", str(tmp_path), "--out", str(tmp_path / "out")])
    assert code == 2 and said in capsys.readouterr().err


def test_jaxs_alexnet_drops_nothing_in_inference_mode(interpreter_of):
    loop = subprocess.run(
        [interpreter_of("flax"), LOOPS / "loop.py", LOOPS / "jax" / "alexnet.py", "--batch", "1", "--mode", "inference",
         "--device", "cpu", "--seconds", "0.1", "--window", "0.01", "--steps", "1"], capture_output=True, text=True, check=False)
    assert (loop.stdout.splitlines()[:1], loop.returncode) == (["ready"], 0), loop.stderr
