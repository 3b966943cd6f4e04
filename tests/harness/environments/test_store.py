"""Building environments: complete or absent, one build at a time, keyed by the recipe.

The Python found on PATH is a shell script that acts as python, venv and pip, so nothing is downloaded and every process is real.
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.environments import install, interpreters, places, recipes, store
from harness.errors import WrongUse
from harness.workers import launch
from harness.workers.worker import Failed, Unsupported

RELEASE = recipes.load("reference").default
PYTHON = recipes.load("reference").recipe(RELEASE).python[0]

# FAKE_PIP_GATE is a named pipe: reading from it holds pip until the test opens the other end.
FAKE_PYTHON = f"""#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip --version") echo "pip 21.0 from nowhere" ;;
  "-m pip install --quiet --upgrade pip") exit 1 ;;
  "-m pip install "*)
    echo "$*" >> "$FAKE_PIP_CALLS"
    if [ -n "$FAKE_PIP_GATE" ]; then cat "$FAKE_PIP_GATE"; fi
    echo "Collecting numpy"; echo "Installing collected packages: numpy"; echo "$FAKE_PIP_ERROR"
    [ -z "$FAKE_PIP_ERROR" ] ;;
  *sysconfig*) dirname "$0" ;;
  *ensurepip*) echo "{PYTHON} $0" ;;
  *) echo '{{"python": "{PYTHON}.7", "packages": [["numpy", "'"${{FAKE_RELEASE:-{RELEASE}}}"'"], ["six", "1.0"]]}}' ;;
esac
"""

BUILD = f"""
from harness.environments import install, store
store.build("reference", "{RELEASE}", "cpu", lambda text: print(text, flush=True))
"""


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Path:
    fake = tmp_path / "bin" / f"python{PYTHON}"
    fake.parent.mkdir()
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    # The Python that runs the tests would be one more.
    monkeypatch.setattr(interpreters, "DRIVER", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("DLBENCH_ENVS", str(tmp_path / "envs"))
    monkeypatch.setenv("FAKE_PIP_CALLS", str(tmp_path / "calls"))
    return tmp_path


def build(told: list[str] | None = None) -> store.Environment:
    return store.build("reference", RELEASE, "cpu", (told if told is not None else []).append)


def pip_calls(machine: Path) -> int:
    return len((machine / "calls").read_text().splitlines())


def folders(machine: Path) -> list[str]:
    return sorted(path.name for path in (machine / "envs").glob("reference-*"))


def test_a_build_makes_a_complete_environment_with_its_lock(machine):
    told: list[str] = []
    built = build(told)
    folder = machine / "envs" / built.key
    assert built == store.Environment(
        framework="reference", release=RELEASE, device="cpu", interpreter=folder / "bin/python", key=built.key,
        python=f"{PYTHON}.7", packages=(f"numpy=={RELEASE}", "six==1.0"), variables={}, origin="built")
    assert built.key.startswith(f"reference-{RELEASE}-cpu-") and folders(machine) == [built.key]
    assert json.loads((folder / "environment.json").read_text())["schema_version"] == 1
    assert told[1:] == ["  reference: Installing collected packages: numpy"]
    assert "Collecting numpy" in (machine / "envs/logs" / f"{built.key}.log").read_text()


def test_a_second_build_finds_the_first_one(machine):
    assert build() == build() == store.find("reference", RELEASE, "cpu") == store.list_environments()[0]
    assert pip_calls(machine) == 1


@pytest.fixture
def fake_python(machine):
    """Put one more Python on PATH: `fake_python("3.12")`."""

    def make(version):
        script = (machine / f"bin/python{PYTHON}").read_text().replace(f"{PYTHON} $0", f"{version} $0").replace(f"{PYTHON}.7", f"{version}.7")
        (machine / f"bin/python{version}").write_text(script)
        (machine / f"bin/python{version}").chmod(0o755)

    return make


def test_the_newest_python_that_is_here_is_taken(machine, fake_python):
    fake_python("3.12")
    assert build().python == f"{PYTHON}.7"


def test_an_environment_stays_when_a_newer_python_comes(machine, fake_python):
    fake_python("3.12")
    newest = machine / f"bin/python{PYTHON}"
    newest.rename(machine / "later")
    first = build()
    (machine / "later").rename(newest)
    assert first.python == "3.12.7" and build() == first and pip_calls(machine) == 1


def test_another_release_takes_the_python_of_the_first(machine, fake_python, monkeypatch):
    """Else a comparison would compare Pythons too."""
    fake_python("3.12")
    newest = machine / f"bin/python{PYTHON}"
    newest.rename(machine / "later")
    build()
    (machine / "later").rename(newest)
    monkeypatch.setenv("FAKE_RELEASE", "2.3.5")
    other = store.build("reference", "2.3.5", "cpu", lambda text: None)
    assert (other.release, other.python) == ("2.3.5", "3.12.7")


def test_pip_is_told_of_the_packages_for_the_chosen_python(machine, fake_python, monkeypatch):
    described = recipes.load("reference")
    listed = [f"numpy=={RELEASE}", 'six==1.0; python_version > "3.12"', 'six==0.9; python_version <= "3.12"']
    recipe = described.recipe(RELEASE).model_copy(update={"packages": {"cpu": listed}})
    monkeypatch.setattr(recipes, "load", lambda name: described.model_copy(update={"releases": {RELEASE: recipe}}))
    fake_python("3.12")
    (machine / f"bin/python{PYTHON}").unlink()
    build()
    assert (machine / "calls").read_text().endswith(f" numpy=={RELEASE} six==0.9\n")


def test_nothing_is_found_before_a_build(machine):
    assert store.find("reference", RELEASE, "cpu") is None
    assert store.list_environments() == []


def test_a_failed_build_leaves_no_folder_and_says_what_pip_said(machine, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_ERROR", "ERROR: No matching distribution found for numpy==2.4.6")
    with pytest.raises(install.BuildFailed, match="No matching distribution found for numpy") as caught:
        build()
    assert folders(machine) == []
    log = Path(str(caught.value).rpartition("Whole log: ")[2])
    assert "No matching distribution" in log.read_text()

    monkeypatch.delenv("FAKE_PIP_ERROR")
    assert build().release == RELEASE


@pytest.mark.parametrize(("before", "remedy"), [
    ("ERROR: Ignored the following yanked versions: 0.4.32", "`dlbench frameworks` lists releases"),
    ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError()'",
     "pip reaches no index: check the network and pip's index-url")])
def test_a_release_that_pip_does_not_find_is_the_first_line_with_a_remedy(machine, monkeypatch, before, remedy):
    wrong = "ERROR: No matching distribution found for numpy==2.4.6"
    listed = f"ERROR: Could not find a version (from versions: {'0.1, ' * 500})"
    monkeypatch.setenv("FAKE_PIP_ERROR", f"{before}\n{listed}\n{wrong}")
    with pytest.raises(install.BuildFailed) as caught:
        build()
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{wrong}; {remedy}"
    assert "failed with exit code 1:" in lines[1] and max(map(len, lines[2:])) <= install.LONGEST_LINE + 2


def test_an_environment_with_another_release_than_asked_for_is_refused(machine, monkeypatch):
    monkeypatch.setenv("FAKE_RELEASE", "1.0.0")
    with pytest.raises(install.BuildFailed, match=f"release {RELEASE} was asked for, 1.0.0 was installed"):
        build()
    assert folders(machine) == []


def test_the_half_of_a_killed_build_is_made_again(machine):
    built = build()
    folder = machine / "envs" / built.key
    (folder / "environment.json").unlink()
    (folder / "rubbish").write_text("half a download")
    assert store.find("reference", RELEASE, "cpu") is None
    assert build() == built
    assert not (folder / "rubbish").exists() and pip_calls(machine) == 2


def test_an_environment_whose_python_is_gone_is_made_again(machine):
    built = build()
    built.interpreter.unlink()
    built.interpreter.symlink_to(machine / "uninstalled")
    assert store.find("reference", RELEASE, "cpu") is None
    assert build() == built


def test_two_builds_at_once_run_pip_once(machine):
    gate = machine / "gate"
    os.mkfifo(gate)
    variables = {**os.environ, "FAKE_PIP_GATE": str(gate)}
    command = [sys.executable, "-c", BUILD]
    with (subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE) as first,
          subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE) as second):
        assert first.stdout and second.stdout
        said = [first.stdout.readline(), second.stdout.readline()]  # each has either the lock or told that it waits
        gate.write_text("go\n")
        assert (first.wait(), second.wait()) == (0, 0)
    assert sum("another process is building it; waiting" in line for line in said) == 1
    assert pip_calls(machine) == 1


def test_a_build_waits_for_the_pip_of_a_killed_one(machine):
    gate = machine / "gate"
    os.mkfifo(gate)
    variables = {**os.environ, "FAKE_PIP_GATE": str(gate)}
    command = [sys.executable, "-c", BUILD]
    with (subprocess.Popen(command, env=variables, text=True, stdout=subprocess.DEVNULL) as killed,
          gate.open("w") as hold):  # opens once pip reads, and pip reads until it closes
        killed.kill()
        with subprocess.Popen(command, env=dict(os.environ), text=True, stdout=subprocess.PIPE) as second:
            assert second.stdout
            assert second.stdout.readline().endswith("another process is building it; waiting\n")
            assert pip_calls(machine) == 1
            hold.close()
            second.communicate()
        assert second.returncode == 0
    assert pip_calls(machine) == 2 and len(store.list_environments()) == 1


def test_changed_variables_reach_an_environment_that_was_built_before(machine, monkeypatch):
    build()
    described = recipes.load("reference")
    recipe = described.recipe(RELEASE).model_copy(update={"variables": {"OMP_NUM_THREADS": "1"}})
    changed = described.model_copy(update={"releases": {RELEASE: recipe}})
    monkeypatch.setattr(recipes, "load", lambda name: changed)
    found = store.find("reference", RELEASE, "cpu")
    assert found is not None and found.variables == build().variables == {"OMP_NUM_THREADS": "1"}
    assert pip_calls(machine) == 1


@pytest.fixture
def compiled(machine, monkeypatch) -> Path:
    """The reference with a recipe whose script, returned, stops half-way until `half` exists in its build folder."""
    script = machine / "compile"
    script.write_text('#!/bin/sh\necho "==> compiling"; echo chatter\n[ -e "$2/half" ] || { touch "$2/half"; exit 3; }\n'
                      'cp "$2/half" "${1%/bin/python}/library.so"\n')
    script.chmod(0o755)
    described = recipes.load("reference")
    recipe = described.recipe(RELEASE).model_copy(
        update={"script": str(script), "variables": {"LD_LIBRARY_PATH": "{folder}/lib:{folder}/more"}})
    changed = described.model_copy(update={"releases": {RELEASE: recipe}})
    monkeypatch.setattr(recipes, "load", lambda name: changed)
    return script


def test_a_script_runs_after_pip_and_goes_on_where_it_failed(machine, compiled):
    with pytest.raises(install.BuildFailed, match=f"{compiled} .*failed with exit code 3"):
        build()
    assert folders(machine) == [] and store.find("reference", RELEASE, "cpu") is None
    told: list[str] = []
    built = build(told)
    assert (built.interpreter.parent.parent / "library.so").exists() and pip_calls(machine) == 2
    assert told[-2:] == [f"{built.key}: {compiled}", "  reference: ==> compiling"]
    assert "chatter" in (machine / "envs/logs" / f"{built.key}.log").read_text()


def test_a_changed_script_is_another_environment(machine, compiled):
    recipe = recipes.load("reference").recipe(RELEASE)
    before = store._key("reference", RELEASE, "cpu", recipe, PYTHON)
    compiled.write_text(compiled.read_text() + "# another compiler flag\n")
    assert store._key("reference", RELEASE, "cpu", recipe, PYTHON) != before


def test_folder_in_a_variable_is_the_environments_own(machine, compiled):
    with pytest.raises(install.BuildFailed):
        build()
    folder = machine / "envs" / build().key
    expanded = {"LD_LIBRARY_PATH": f"{folder}/lib:{folder}/more"}
    assert build().variables == expanded
    found = store.find("reference", RELEASE, "cpu")
    assert found is not None and found.variables == expanded
    assert store.existing("reference", folder / "bin/python", "cpu").variables == expanded


def test_missing_system_packages_are_named_with_the_remedy(machine, monkeypatch):
    described = recipes.load("reference")
    recipe = described.recipe(RELEASE).model_copy(update={"system": ["libnowhere-dev", "libneither-dev"]})
    changed = described.model_copy(update={"releases": {RELEASE: recipe}})
    monkeypatch.setattr(recipes, "load", lambda name: changed)
    (machine / "bin/dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (machine / "bin/apt-get").write_text('#!/bin/sh\necho "E: Unable to locate package libnowhere-dev"; exit 100\n')
    (machine / "bin/id").write_text("#!/bin/sh\necho 0\n")
    for fake in ("dpkg-query", "apt-get", "id"):
        (machine / "bin" / fake).chmod(0o755)
    with pytest.raises(install.BuildFailed, match=r"(?s)libnowhere-dev libneither-dev.*Unable to locate package"):
        build()
    assert folders(machine) == [] and not (machine / "calls").exists()


@pytest.mark.parametrize(("change", "other"), [
    ({"python": ["3.12"]}, False),
    ({"packages": {"cpu": ["numpy==2.4.6", "six"]}}, True),
    ({"indexes": {"cpu": ["https://example.org/simple"]}}, True),
    ({"system": ["libopenblas0"]}, True),
    ({"script": "scripts/find-python"}, True),
    ({"variables": {"OMP_NUM_THREADS": "1"}}, False),
    ({"notes": "words"}, False),
])
def test_what_changes_the_installation_changes_the_key(change, other):
    recipe = recipes.load("reference").recipe(RELEASE)
    keys = [store._key("reference", RELEASE, "cpu", each, PYTHON) for each in (recipe, recipe.model_copy(update=change))]
    assert (keys[0] != keys[1]) is other


def test_another_python_is_another_environment():
    recipe = recipes.load("reference").recipe(RELEASE)
    assert len({store._key("reference", RELEASE, "cpu", recipe, python) for python in recipe.python}) == len(recipe.python)


def test_an_unsupported_device_is_refused_with_its_reason(machine):
    with pytest.raises(WrongUse, match="on cuda: unsupported: the reference is NumPy"):
        store.build("reference", RELEASE, "cuda")


def test_an_existing_interpreter_is_described(machine, monkeypatch):
    monkeypatch.setenv("FAKE_RELEASE", "1.26.4+local")
    found = store.existing("reference", interpreters.find([PYTHON]).path, "cpu")
    assert (found.release, found.origin, found.packages) == ("1.26.4", "existing", ("numpy==1.26.4+local", "six==1.0"))
    assert found.interpreter == machine / "bin" / f"python{PYTHON}"
    assert found.key.startswith("reference-1.26.4-cpu-")


def test_this_interpreter_is_described_by_the_real_probe():
    import numpy

    found = store.existing("reference", Path(sys.executable), "cpu")
    assert found.release == numpy.__version__ and f"numpy=={numpy.__version__}" in found.packages
    assert found.python == sys.version.split()[0]


def test_an_interpreter_may_be_named_from_here(monkeypatch):
    here = Path(sys.executable)
    monkeypatch.chdir(here.parent.parent)
    found = store.existing("reference", Path(here.parent.name, here.name), "cpu")
    assert found.interpreter == here


def test_an_interpreter_without_the_framework_is_refused(machine):
    with pytest.raises(WrongUse, match="has none of tensorflow, tensorflow-cpu"):
        store.existing("tensorflow", interpreters.find([PYTHON]).path, "cpu")


def test_what_is_no_interpreter_is_refused(tmp_path):
    with pytest.raises(WrongUse, match=r"is not a Python interpreter that runs: .*; name another$"):
        store.existing("reference", tmp_path / "python", "cpu")


@pytest.fixture
def server(monkeypatch):
    class NotFound(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(int(self.path.strip("/")))

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("no_proxy", "*")
    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "used"), [(200, True), (403, True), (404, True), (503, False)])
def test_an_extra_index_is_used_only_where_it_answers(server, status, used):
    told: list[str] = []
    assert install.answers(f"{server}/{status}", told.append) is used
    assert len(told) == (0 if used else 1)


@pytest.mark.parametrize("index", ["http://127.0.0.1:1/simple", "http://127.0.0.1:1/not a URL", "nothing"])
def test_an_index_that_cannot_be_reached_is_left_out_with_a_note(index):
    told: list[str] = []
    assert install.answers(index, told.append) is False
    assert told[0].startswith(f"{index} does not answer (")
    assert told[0].endswith("pip's own configuration decides which build is installed")


NOWHERE = "http://127.0.0.1:1/simple"
SAID = "The installation of tensorrt-cu13-libs for version 11.4.0.106 failed."
PIP = f"error: subprocess-exited-with-error\n      {SAID}\nerror: metadata-generation-failed"


@pytest.mark.parametrize(("own_index", "kind", "refusal"), [(True, install.NoIndex, Unsupported), (False, install.BuildFailed, Failed)])
def test_what_a_silent_index_alone_has_is_unsupported_in_pip_s_words(machine, monkeypatch, own_index, kind, refusal):
    monkeypatch.setenv("FAKE_PIP_ERROR", PIP)
    recipe = recipes.load("reference").recipe(RELEASE).model_copy(update={"indexes": {"cpu": [NOWHERE]}, "own_index": own_index})
    with pytest.raises(install.BuildFailed) as caught:
        store.build("reference", RELEASE, "cpu", lambda _: None, recipe)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{NOWHERE} does not answer; pip: {SAID}" if own_index else SAID)
    with pytest.raises(refusal, match=SAID):
        launch.start(caught.value, SimpleNamespace(framework="reference"), machine / "log")


def test_an_index_that_answers_makes_a_failed_build_a_failure(machine, monkeypatch, server):
    monkeypatch.setenv("FAKE_PIP_ERROR", PIP)
    recipe = recipes.load("reference").recipe(RELEASE).model_copy(update={"indexes": {"cpu": [f"{server}/200"]}, "own_index": True})
    with pytest.raises(install.BuildFailed) as caught:
        store.build("reference", RELEASE, "cpu", lambda _: None, recipe)
    assert type(caught.value) is install.BuildFailed


def test_a_few_packages_more_make_an_environment_beside_the_other_which_stays(machine):
    base, told = build(), list[str]()
    more = store.extended(base, ["six==1.0"], told.append)
    assert more.key == more.interpreter.parents[1].name != base.key and more.key.startswith(f"{base.key}-with-")
    assert more.packages == (f"numpy=={RELEASE}", "six==1.0") and more.release == base.release
    assert store.extended(base, ["six==1.0"], told.append) == more and pip_calls(machine) == 2
    assert folders(machine) == sorted([base.key, more.key]) and build() == base


def test_a_loader_that_pip_cannot_install_leaves_no_folder(machine, monkeypatch):
    base = build()
    monkeypatch.setenv("FAKE_PIP_ERROR", "ERROR: no such package")
    with pytest.raises(store.BuildFailed, match="no such package"):
        store.extended(base, ["six==1.0"], lambda text: None)
    assert folders(machine) == [base.key]


def test_what_an_environment_adds_to_sees_its_packages(machine, tmp_path):
    """A real Python, without pip: the .pth file leads to the other's packages."""
    base, ours = tmp_path / "base", tmp_path / "ours"
    for folder in (base, ours):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = [install.site_of(folder / "bin/python") for folder in (base, ours)]
    Path(site[0], "there.py").write_text("word = 'seen'")
    install.let_see(ours / "bin/python", base / "bin/python")
    said = subprocess.run([ours / "bin/python", "-c", "import there; print(there.word)"], check=True,
                          capture_output=True, text=True).stdout
    assert said == "seen\n"


def test_a_file_is_no_place_for_environments(tmp_path, monkeypatch):
    file = tmp_path / "envs"
    monkeypatch.setenv("DLBENCH_ENVS", str(file))
    assert places.root() == file
    file.touch()
    with pytest.raises(WrongUse, match=re.escape(f"{file}: is a file; name a folder in DLBENCH_ENVS, or unset it")):
        places.root()
