"""What a new user types first: no command, `--version`, `frameworks`, `init`, and dlbench from a wheel, without a clone."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import VERSION
from harness.cli import options, terminal
from harness.environments import recipes, store
from harness.plan.suite import load_suite
from harness.validation import CHECKOUT


def test_no_command_prints_the_help_once_and_is_no_fault(dlbench):
    answer = dlbench()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.count("Usage: dlbench") == 1 and "verify" in answer.out


def test_a_group_alone_prints_its_commands(dlbench):
    answer = dlbench("env")
    assert (answer.code, answer.err, "build" in answer.out) == (0, "", True)


def test_the_version_is_printed(dlbench):
    assert dlbench("--version") == (0, f"dlbench {VERSION}\n", "")


def test_the_version_is_that_of_the_package():
    assert f'version = "{VERSION}"' in (CHECKOUT / "pyproject.toml").read_text()


def test_completion_is_offered_for_a_shell(monkeypatch, dlbench):
    monkeypatch.setenv("_DLBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "dlbench netw")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert dlbench().out.split() == ["networks"]


@pytest.mark.parametrize("words", [["frameworks"], ["networks"], ["env", "list"], ["run", "smoke", "--dry-run"]], ids=" ".join)
def test_a_table_fits_80_columns_and_loses_nothing(dlbench, monkeypatch, words):
    monkeypatch.setattr(terminal.console, "width", 80)
    made = store.Environment("pytorch", "2.13.0", "cpu", Path("/a/long/path/to/the/folder/of/all/environments/pytorch-2.13.0/bin/python"), "key",
                             "3.11.7", ("numpy==2.4.6",), {}, "built")
    monkeypatch.setattr(store, "list_environments", lambda: [made])
    lines = dlbench(*words).out.splitlines()
    # Sentences are not broken, so that they can be searched.
    table = [line for line in lines if not line.endswith(".")]
    assert len(table) > 3 and max(map(len, table)) <= 80
    assert not any("…" in line for line in lines)


def test_every_framework_is_listed_with_its_default_release(dlbench):
    listed = [line.split() for line in dlbench("frameworks").out.splitlines()]
    for name in recipes.names():
        assert [name, recipes.load(name).default] in [line[:2] for line in listed]


def test_the_first_suite_is_valid_and_planned(dlbench, tmp_path):
    file = tmp_path / "my own.yaml"
    answer = dlbench("init", str(file))
    assert (answer.code, answer.err) == (0, "") and f"dlbench run '{file}' --dry-run" in answer.out
    assert load_suite(file).frameworks == ("pytorch", "tensorflow")
    assert file.read_text().count("\n#") > 7
    assert dlbench("run", str(file), "--dry-run", "device=cpu").code == 0


def test_a_suite_that_is_there_is_not_overwritten(dlbench, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("title: mine\n")
    assert dlbench("init", str(file)) == (2, "", f"dlbench: {file}: is there already; name another file\n")
    assert file.read_text() == "title: mine\n"


@pytest.mark.parametrize(("given", "found"), [
    ("smoke", CHECKOUT / "configs/smoke.yaml"), ("gpu.yaml", CHECKOUT / "configs/gpu.yaml"),
    ("configs/smoke.yaml", CHECKOUT / "configs/smoke.yaml"), ("mine.yaml", Path("mine.yaml")),
    ("elsewhere/smoke.yaml", Path("elsewhere/smoke.yaml")), ("/nowhere/smoke.yaml", Path("/nowhere/smoke.yaml")),
])
def test_a_suite_of_dlbench_is_found_by_its_name(monkeypatch, tmp_path, given, found):
    monkeypatch.chdir(tmp_path)
    assert options.suite_of(given) == found


def test_a_file_of_ones_own_comes_before_a_suite_of_dlbench(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("smoke.yaml").write_text("title: mine\n")
    assert options.suite_of("smoke.yaml") == Path("smoke.yaml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked as pip does, in a folder far from the clone."""
    version = importlib.metadata.version("setuptools")
    if int(version.partition(".")[0]) < 77:
        pytest.skip(f"building the wheel needs setuptools 77, here is {version}: pip install --upgrade setuptools")
    if not shutil.which("git"):
        pytest.skip("the wheel's sources are listed by git: apt-get install git")
    folder = tmp_path_factory.mktemp("wheel")
    # Beside its sources setuptools would leave build/ and *.egg-info.
    sources = subprocess.run(["git", "-C", str(CHECKOUT), "ls-files", "-co", "--exclude-standard", "--", "pyproject.toml", "LICENSE", "networks",
                              "runners", "harness", "analysis", "configs", "scripts"], capture_output=True, text=True, check=True).stdout.split()
    for name in sources:
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((CHECKOUT / name).read_bytes())
        copy.chmod((CHECKOUT / name).stat().st_mode)
    for words in (["wheel", "--no-build-isolation", "--wheel-dir", folder / "built", folder / "source"],
                  ["install", "--no-index", "--target", folder / "installed", "dlbench", "--find-links", folder / "built"]):
        subprocess.run([sys.executable, "-m", "pip", words[0], "--quiet", "--no-deps", "--disable-pip-version-check", *words[1:]], check=True)
    return folder / "installed"


@pytest.mark.parametrize(("words", "said"), [
    (["--version"], f"dlbench {VERSION}"), (["networks"], "resnet50"), (["frameworks"], "pytorch"),
    (["run", "smoke", "--dry-run"], "Nothing was started."), (["env", "list"], "{home}/.cache/dlbench/envs"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_the_wheel_works_without_a_clone(wheel, tmp_path, words, said):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("DLBENCH_", "XDG_"))}
    ran = subprocess.run([sys.executable, "-c", "from harness.start import main; main()", *words], cwd=tmp_path, capture_output=True,
                         text=True, check=False, env={**variables, "PYTHONPATH": str(wheel), "HOME": str(tmp_path), "COLUMNS": "80"})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert said.format(home=tmp_path) in ran.stdout.replace("\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["build-caffe", "link-cntk-libraries", "system-packages"])
def test_the_wheels_scripts_can_be_run(wheel, name):
    assert os.access(wheel / "scripts" / name, os.X_OK)
