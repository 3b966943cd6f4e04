"""The command line as a person meets it: exit codes, one clear message for wrong input, and output that other tools may read."""

import csv
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from rich.console import Console

import networks
from analysis.records import reader
from harness.campaign import campaign
from harness.cli import terminal, verify
from harness.cli.progress import count
from harness.environments import recipes, store
from harness.errors import WrongUse
from harness.workers import launch

ROOT = Path(__file__).parents[3]
HERE = ["--interpreter", f"reference={sys.executable}"]
SMALL = {"peaks": False, "frameworks": "one", "networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 1, "windows": 2,
         "window_seconds": 0.01, "data": "host"}
COLUMNS = "framework,network,parameters,loss_error,gradient_error,trajectory_error,verdict,reason"


@pytest.fixture
def suite(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


@pytest.fixture
def no_worker(monkeypatch) -> None:
    """Make starting a worker an error."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(launch, "Worker", refuse)


def test_the_command_starts_without_libraries_that_few_commands_need():
    asked = "import sys, harness.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "pandas" in loaded
    assert not {"scipy.stats", "scipy.optimize", "matplotlib", "plotly", "mlxtend"} & set(loaded)


def test_networks_are_listed_with_their_parameters_and_nothing_is_cut(dlbench, monkeypatch):
    monkeypatch.setattr(terminal.console, "width", 80)
    answer = dlbench("networks")
    assert (answer.code, answer.err, "…" in answer.out) == (0, "", False)
    listed = [line.split()[:2] for line in answer.out.splitlines()]
    for name in networks.names() + networks.names(small=True):
        assert [name, f"{networks.get(name).parameter_count:,}"] in listed
    assert {"2048"} <= set(answer.out.split())


def test_one_network_is_listed_layer_by_layer_to_its_total(dlbench):
    answer = dlbench("networks", "resnet50")
    assert (answer.code, answer.err) == (0, "")
    rows = [line.split() for line in answer.out.splitlines() if line.strip()]
    names = [layer.name for layer in networks.get("resnet50").layers]
    assert [row[0] for row in rows if row[0] in names] == names
    [first] = [" ".join(row) for row in rows if row[0] == "conv2d1"]
    assert first.startswith("conv2d1 conv2d filters=64 kernel=7 stride=2 padding=3 bias=False groups=1 input 64 x 112 x 112 9,408 ")
    assert [row[1] for row in rows if row[0] == "total"] == ["25,557,032"]


@pytest.mark.parametrize("name", ["resnet50", "llama_1b", "googlenet"])
def test_the_layers_of_a_network_fit_80_columns(dlbench, monkeypatch, name):
    monkeypatch.setattr(terminal.console, "width", 80)
    answer = dlbench("networks", name)
    assert (answer.code, answer.err, "…" in answer.out) == (0, "", False)
    assert re.search("forward +backward", answer.out)
    assert f"{networks.get(name).parameter_count:,} " in answer.out


def test_the_doctor_answers_in_json(dlbench):
    answer = dlbench("doctor", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["machine"]["cpu"]["allowed"] >= 1


def test_verify_leaves_out_the_distance_that_dropout_hides(dlbench):
    answer = dlbench("verify", "--frameworks", "reference", "--networks", "tiny_dropout", *HERE)
    assert (answer.code, answer.err) == (0, "")
    assert "nan" not in answer.out and re.search(r"parameters, relative errors: loss \S+, trajectory", answer.out)


def test_verify_writes_its_stable_columns(dlbench, tmp_path):
    out = tmp_path / "file.csv"
    answer = dlbench("verify", "--frameworks", "reference", "--networks", "tiny_fcn,tiny_lstm", "--out", str(out), *HERE)
    assert (answer.code, answer.err) == (0, "")
    header, *rows = out.read_text().splitlines()
    # Its momentum is read from moves, which float64 rounds.
    said = [re.sub(r"[\d.]+e-1[1-9],same", "tiny,same", row) for row in rows]
    assert (header, said) == (COLUMNS, ["reference,tiny_fcn,861,0.0,0.0,tiny,same,",
                                        "reference,tiny_lstm,767,0.0,0.0,tiny,same,"])
    assert "reference    tiny_fcn       same          861 parameters, relative errors: loss 0.0e+00, " in answer.out


def test_verify_says_no_with_1_and_keeps_the_reason(dlbench, stand_in, tmp_path):
    stand_in(one="reference", nesterov="reference:Nesterov", broken="processes.wire:Raises")
    out = tmp_path / "file.csv"
    answer = dlbench("verify", "--frameworks", "one,nesterov,broken", "--networks", "tiny_fcn", "--out", str(out))
    assert (answer.code, answer.err) == (1, "")
    with out.open() as file:
        rows = {row["framework"]: row for row in csv.DictReader(file)}
    assert {name: row["verdict"] for name, row in rows.items()} == {"one": "same", "nesterov": "different", "broken": "failed"}
    assert ": Nesterov momentum; " in rows["nesterov"]["reason"]
    assert (rows["broken"]["reason"], rows["broken"]["gradient_error"]) == ("crashed: RuntimeError: the third step is broken", "")


def test_a_verify_that_is_stopped_has_written_the_verdicts_it_had(stand_in, tmp_path):
    stand_in(one="reference", two="reference")
    out, said = tmp_path / "file.csv", []

    class Stopped(Console):
        def print(self, *words, **options):
            said.append(words)
            raise KeyboardInterrupt

    wanted = {"frameworks": ["one", "two"], "networks": ["tiny_fcn"], "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        verify.verify(wanted, Stopped(), out=out)
    header, row = out.read_text().splitlines()
    assert (header, row.split(",")[:2], len(said)) == (COLUMNS, ["one", "tiny_fcn"], 1)


def test_where_no_row_can_be_verified_nothing_is_proven(dlbench, stand_in, tmp_path):
    built = stand_in(one="reference")
    out = tmp_path / "file.csv"
    answer = dlbench("verify", "--frameworks", "one", "--networks", "tiny_fcn", "--device", "cuda", "--out", str(out))
    assert (answer.code, answer.err, built) == (1, "", [])
    assert out.read_text() == f"{COLUMNS}\none,tiny_fcn,,,,,unsupported,NumPy computes on the CPU\n"


def test_verify_checks_several_devices_and_says_how_many(dlbench, stand_in, tmp_path):
    stand_in(one="processes.ranks")
    out = tmp_path / "verify.csv"
    answer = dlbench("verify", "--networks", "tiny_fcn", "--frameworks", "one", "--devices", "1,2", "--out", str(out))
    assert answer.code == 0
    assert "one x2" in answer.out
    with out.open() as file:
        assert [(row["devices"], row["verdict"]) for row in csv.DictReader(file)] == [("1", "same"), ("2", "same")]


def test_a_runner_that_fails_before_its_first_answer_is_a_row(dlbench, stand_in, tmp_path):
    stand_in(one="import_fails")
    out = tmp_path / "file.csv"
    answer = dlbench("verify", "--frameworks", "one", "--networks", "tiny_fcn", "--out", str(out))
    assert (answer.code, answer.err) == (1, "")
    assert "failed,crashed: ImportError: libcublas.so.12: cannot open shared object file" in out.read_text()


def test_a_framework_that_refuses_before_its_first_answer_is_unsupported_in_its_words(dlbench, stand_in, tmp_path):
    stand_in(one="processes.wire:Refuses")
    out = tmp_path / "file.csv"
    answer = dlbench("verify", "--frameworks", "one", "--networks", "tiny_fcn", "--out", str(out))
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.endswith("Nothing was proven: no row can run here.\n")
    assert out.read_text().endswith(",unsupported,this wheel needs AVX-512 [see the release notes]\n")
    assert "unsupported  this wheel needs AVX-512 [see the release notes]\n" in answer.out


def test_a_dry_run_prints_the_plan_and_starts_nothing(dlbench, stand_in, suite, no_worker, tmp_path):
    built = stand_in(one="reference")
    answer = dlbench("run", str(suite), "--dry-run", "--out", str(tmp_path / "out"), "precisions=fp32,tf32")
    assert (answer.code, answer.err, built) == (0, "", [])
    assert "TF32 is a format of NVIDIA's tensor cores; this trial is on a CPU" in answer.out
    assert answer.out.endswith("2 trials, 1 process each, about 15.1 s once the environments are built. Nothing was started.\n")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_resume_refuses_another_suite_as_resume_does(dlbench, stand_in, suite, tmp_path):
    stand_in(one="reference")
    words = ["run", str(suite), "--out", str(tmp_path / "out")]
    assert dlbench(*words).code == 0
    assert dlbench(*words, "--resume", "--dry-run").code == 0
    answer = dlbench(*words, "--resume", "--dry-run", "windows=3")
    assert answer.code == 2
    assert answer.err == dlbench(*words, "--resume", "windows=3").err
    assert "windows is 3 now and was 2: resume with the suite" in answer.err


@pytest.mark.parametrize(("words", "said"), [((), ""), (("profile=true",), ", 1 profile"),
                                             (("profile=true", "networks=tiny_fcn,tiny_lstm"), ", 2 profiles")])
def test_a_plan_counts_the_profiles_beside_its_processes(dlbench, stand_in, suite, no_worker, words, said):
    stand_in(one="reference")
    assert f"1 process each{said}, about " in dlbench("run", str(suite), *words, "--dry-run").out


def test_a_dry_run_of_refused_rows_has_no_time(dlbench, stand_in, suite, no_worker):
    stand_in(one="reference")
    answer = dlbench("run", str(suite), "--dry-run", "precisions=tf32")
    assert answer.out.endswith("1 trial, 1 process each, all refused. Nothing was started.\n")


@pytest.mark.parametrize(("devices", "said"), [("4096", True), ("1", False)])
def test_a_dry_run_says_where_devices_share_the_cores(dlbench, stand_in, suite, no_worker, devices, said):
    stand_in(ranks="processes.ranks")
    answer = dlbench("run", str(suite), "--dry-run", "frameworks=ranks", f"devices={devices}")
    cores = len(os.sched_getaffinity(0))
    assert (f"{devices} x cpu, threads 1, sums, sharing {count(cores, 'core')}" in answer.out) is said, answer.out


def test_a_run_that_succeeds_leaves_records_a_table_and_a_page(dlbench, stand_in, suite, tmp_path):
    built = stand_in(one="reference")
    answer = dlbench("run", str(suite), "--out", str(tmp_path / "out"))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[0] == f"small: 1 trial, 1 process, records in {tmp_path / 'out'}"
    assert f"Page: {tmp_path / 'out' / 'report.html'}" in answer.out
    assert reader.read(tmp_path / "out").processes["status"].tolist() == ["ok"]
    audited = dlbench("audit", str(tmp_path / "out"))
    assert (audited.code, "all holds" in audited.out) == (0, True), audited.out
    again = dlbench("run", str(suite), "--out", str(tmp_path / "out"))
    assert (again.code, again.out, built) == (2, "", ["one"])
    assert "holds a campaign already: go on with --resume" in again.err


def test_a_run_with_a_failed_row_exits_with_1(dlbench, stand_in, suite, tmp_path):
    stand_in(one="reference", broken="processes.wire:Raises")
    answer = dlbench("run", str(suite), "frameworks=one,broken", "--out", str(tmp_path / "out"))
    assert (answer.code, answer.err) == (1, "")
    trial = f"broken-{np.__version__}-tiny_fcn-b4-cpux1-t1-fp32-stock-host"
    assert f"{trial} process 0: failed: crashed: RuntimeError: the third step is broken\n" in answer.out
    assert reader.read(tmp_path / "out").processes["status"].tolist().count("ok") == 1


def test_an_interrupted_run_says_how_to_go_on(dlbench, stand_in, suite, tmp_path, monkeypatch):
    stand_in(one="reference")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run", interrupt)
    out = tmp_path / "a folder"
    answer = dlbench("run", str(suite), "batch=4", "limits.start=10", "--out", str(out))
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.endswith(f"Go on with: dlbench run {suite} batch=4 limits.start=10 --out '{out}' --resume\n")


@pytest.mark.parametrize(("words", "message"), [
    (["networks", "resnet51"], "dlbench: unknown network resnet51; did you mean resnet56? Known: alexnet, "),
    (["verify", "--networks", "resnet51"],
     "dlbench: dlbench verify: networks: unknown network resnet51; did you mean resnet56? Known: "),
    (["verify", "--frameworks", "pytorchh"],
     "dlbench: dlbench verify: frameworks: unknown framework pytorchh; did you mean pytorch? Known: "),
    (["verify", "--frameworks", "pytorch==new"], "dlbench: dlbench verify: frameworks: pytorch==new: a release is written as in pytorch=="),
    (["verify", "--precision", "fp8"],
     "dlbench: dlbench verify: precisions.0: input should be 'fp32', 'tf32', 'bf16', 'fp16' or 'int8', is 'fp8'"),
    (["verify", "--device", "gpu"],
     "dlbench: dlbench verify: device: input should be 'auto', 'cpu', 'cuda' or 'both', is 'gpu'"),
    (["verify", "--interpreter", "pytorch"],
     "dlbench: --interpreter pytorch: write FRAMEWORK=PATH, for example pytorch=/usr/bin/python3"),
    (["verify", "--frameworks", "reference==1.19.5", "--interpreter", f"reference={sys.executable}"],
     f"dlbench: reference==1.19.5: {sys.executable} has {np.__version__}; name that release, or another interpreter"),
    (["run", "{suite}", "--interpreter", "reference==2.4.6=/a", "--interpreter", "reference=/b"],
     "dlbench: --interpreter reference: given twice, once for all releases and once for reference==2.4.6; name a release in both"),
    (["verify", "--frameworks", "reference", "--interpreter", "reference=/no/python"],
     "dlbench: the interpreter of reference: /no/python: is not a Python interpreter that runs: "),
    (["run", "/no/suite.yaml"], "dlbench: /no/suite.yaml: no such file"),
    (["run", "{suite}", "bach=4"], "dlbench: {suite}: bach: unknown key; did you mean batches? Known: "),
    (["run", "{suite}", "frameworks=pytorhc"],
     "dlbench: {suite}: frameworks: unknown framework pytorhc; did you mean pytorch? Known: "),
    (["run", "{suite}", "networks="], "dlbench: {suite}: networks: there is no value; "),
    (["run", "{empty}"], "dlbench: {empty}: is a folder; name a file of YAML in it"),
    (["run", "{suite}", "frameworks=reference", "--out", "{suite}"], "dlbench: {suite}: is a file; name a folder with --out"),
    (["run", "{suite}", "batch"], "dlbench: override 'batch': write key=value, for example devices=1,2"),
    (["run", "{suite}", "networks=[fcn5"], "dlbench: override 'networks=[fcn5': its value is not YAML (line 1: "),
    (["run", "{suite}", "networks.[fcn5].batch=2"],
     "dlbench: {suite}: networks: unknown network [fcn5]; did you mean fcn5?"),
    (["run", "{suite}", "=3"], "dlbench: override '=3': write key=value, for example devices=1,2"),
    (["verify", "--frameworks", "reference", "--interpreter", "reference=/bin/false"],
     "dlbench: the interpreter of reference: /bin/false: cannot list its packages (exit code 1); name the path of a Python interpreter"),
    (["slurm-script", "{suite}", "--dry-run"], "dlbench: --dry-run: this command only prints; omit it"),
    (["study", "gemm", "--networks", "none", "--resume", "--device", "cpu"],
     "dlbench: --resume: name the folder of the study with --out"),
    (["run", "{suite}", "--resume"], "dlbench: --resume: name the campaign's folder with --out DIR"),
    (["report", "{empty}"], "dlbench: {empty}/campaign.json: no such file; name a folder that `dlbench run` wrote, such as "),
    (["compare", "jax==0.9.2"], "dlbench: jax==0.9.2: name the other side too, as in `dlbench compare jax==0.9.2 "),
    (["study", "gemm", "--networks", " ,"], "dlbench: word 4 of the command line, ' ,': names nothing; write a value, or "),
    (["report", "{empty}", "{empty}"], "dlbench: {empty}: is named twice; name it once"),
    (["env", "build", "torch"], "dlbench: unknown framework torch; did you mean pytorch? "),
    (["data", "fetch", "mnits"], "dlbench: "),
])
def test_wrong_input_is_one_message_without_a_traceback(dlbench, suite, no_worker, tmp_path, words: list[str], message: str):
    places = {"suite": str(suite), "empty": str(tmp_path)}
    answer = dlbench(*(word.format(**places) for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(message.format(**places))
    assert answer.err.count("\n") == 1


def test_the_interpreter_of_a_default_release_must_have_that_release(monkeypatch):
    monkeypatch.setattr(store, "existing", lambda *arguments: SimpleNamespace(release="0.1"))
    default = recipes.load("reference").default
    with pytest.raises(WrongUse, match=f"reference=={default}: /a/python has 0.1; name that release"):
        campaign.release_of("reference", {f"reference=={default}": Path("/a/python")}, "cpu")
    assert campaign.release_of("reference", {"reference": Path("/a/python")}, "cpu") == "0.1"


def test_a_full_disk_is_one_message_that_names_the_folder(dlbench, suite, stand_in, tmp_path, monkeypatch):
    stand_in(one="reference")

    def save(path, weights):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.data.arrays.save_weights", save)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer = dlbench("run", str(suite), "--out", str(tmp_path / "out"))
    assert answer.code == 2
    assert f"dlbench: the folder of the output, or {tmp_path}: No space left on device: make room there. " in answer.err and "Traceback" not in answer.err


def test_a_batch_that_the_set_does_not_hold_is_a_refused_row_before_anything_runs(dlbench, suite, stand_in, tmp_path):
    stand_in(one="processes.ranks")
    answer = dlbench("run", str(suite), "networks=fcn5", "data=auto", "batch=3000", "devices=1,2", "--dry-run")
    assert "1 refused: a mini-batch of 6,000 does not fit into the 5,000 samples of mnist that are here: ask for" in answer.out
    assert answer.code == 0


@pytest.mark.parametrize("words", [["levitate"], ["verify", "--colour", "red"], ["run"]])
def test_words_that_no_verb_knows_exit_with_2(dlbench, words: list[str]):
    answer = dlbench(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "Usage: " in answer.err and "Traceback" not in answer.err


def test_the_command_itself_exits_with_2_and_one_line(tmp_path):
    command = [sys.executable, "-c", "from harness.cli.main import main; main()", "run", str(tmp_path / "none.yaml")]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (2, "",
        f"dlbench: {tmp_path / 'none.yaml'}: no such file; name a file of YAML\n")


def test_a_command_works_where_nobody_listens_on_stderr():
    command = f"{shlex.quote(sys.executable)} -c 'from harness.cli.main import main; main()' networks 2>&-"
    answer = subprocess.run(command, shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
    assert answer.returncode == 0 and "fcn5" in answer.stdout


def test_a_crash_in_a_native_library_says_where():
    crash = "import os, signal; from harness.cli import main; main._run_app = lambda: os.kill(os.getpid(), signal.SIGSEGV); main.main()"
    answer = subprocess.run([sys.executable, "-c", crash], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in answer.stderr and "in main" in answer.stderr
