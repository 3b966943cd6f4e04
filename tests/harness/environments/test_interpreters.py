"""Finding a Python: candidates are shell scripts here, so nothing depends on what this machine has installed."""

import sys
from pathlib import Path

import pytest

from harness.environments import interpreters, places
from harness.environments import uv as bring_python
from harness.errors import WrongUse


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("DLBENCH_ENVS", str(tmp_path / "envs"))
    monkeypatch.setattr(interpreters, "DRIVER", "3.5")


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(path: Path, version: str) -> Path:
    return script(path, f'echo {version} "$0"')


def test_a_python_on_path_comes_before_one_of_pyenv(tmp_path):
    wanted = python(tmp_path / "path/python3.11", "3.11")
    python(tmp_path / "pyenv/versions/3.11.7/bin/python3.11", "3.11")
    assert interpreters.find(["3.11"]) == ("3.11", wanted)


def test_a_pyenv_shim_that_cannot_run_is_passed_over(tmp_path):
    script(tmp_path / "path/python3.9", 'echo "pyenv: python3.9: command not found" >&2; exit 127')
    wanted = python(tmp_path / "pyenv/versions/3.9.18/bin/python3.9", "3.9")
    assert interpreters.find(["3.9"]) == ("3.9", wanted)


def test_a_broken_shim_does_not_hide_the_next_folder_of_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{tmp_path}/second")
    script(tmp_path / "path/python3.11", "exit 127")
    wanted = python(tmp_path / "second/python3.11", "3.11")
    assert interpreters.find(["3.11"]) == ("3.11", wanted)


def test_the_newest_patch_of_pyenv_is_taken(tmp_path):
    python(tmp_path / "pyenv/versions/3.9.9/bin/python3.9", "3.9")
    wanted = python(tmp_path / "pyenv/versions/3.9.18/bin/python3.9", "3.9")
    python(tmp_path / "pyenv/versions/3.9-dev/bin/python3.9", "3.9")
    assert interpreters.find(["3.9"]) == ("3.9", wanted)


def test_uv_is_asked_last(tmp_path):
    wanted = python(tmp_path / "uv-pythons/python3.6", "3.6")
    script(tmp_path / "path/uv", f'[ "$*" = "python find --no-project 3.6" ] && echo {wanted}')
    assert interpreters.find(["3.6"]) == ("3.6", wanted)


def test_the_interpreter_behind_a_shim_is_returned(tmp_path):
    behind = python(tmp_path / "elsewhere/python3.11", "3.11")
    script(tmp_path / "path/python3.11", f'exec {behind} "$@"')
    assert interpreters.find(["3.11"]) == ("3.11", behind)


def test_nothing_found_says_what_was_tried_and_how_to_get_it(tmp_path):
    script(tmp_path / "path/python3.6", 'echo "Traceback" >&2; echo "ModuleNotFoundError: No module named ensurepip" >&2; exit 1')
    python(tmp_path / "pyenv/versions/3.6.15/bin/python3.6", "3.7")
    with pytest.raises(WrongUse) as caught:
        interpreters.find(["3.6"])
    assert str(caught.value) == (
        "Python 3.6 is needed and was not found on PATH, in pyenv or in uv.\n"
        f"  {tmp_path}/path/python3.6: ModuleNotFoundError: No module named ensurepip\n"
        f"  {tmp_path}/pyenv/versions/3.6.15/bin/python3.6: is Python 3.7\n"
        "Install it: `apt-get install python3.6 python3.6-venv`, `pyenv install 3.6` or `uv python install 3.6`"
    )


def test_of_several_pythons_the_first_that_is_here_is_taken(tmp_path):
    script(tmp_path / "path/python3.14", "exit 127")
    python(tmp_path / "path/python3.12", "3.12")
    wanted = python(tmp_path / "pyenv/versions/3.13.0/bin/python3.13", "3.13")
    assert interpreters.find(["3.14", "3.13", "3.12"]) == ("3.13", wanted)


def test_a_range_is_named_as_one():
    with pytest.raises(WrongUse, match=r"^Python 3\.10 to 3\.12 is needed and was not found"):
        interpreters.find(["3.12", "3.11", "3.10"])


def test_the_drivers_own_python_is_found_beside_path(monkeypatch):
    version = "{}.{}".format(*sys.version_info)
    monkeypatch.setattr(interpreters, "DRIVER", version)
    assert interpreters.find([version]).version == version


@pytest.fixture
def uv(monkeypatch, tmp_path):
    """A stand-in for uv that brings any Python but 3.6; pip installs it as the real one."""
    body = """[ "$*" = "python install 3.6" ] && { echo "error: No download" >&2; echo "  Caused by: no 3.6" >&2; exit 1; }
case "$1 $2" in "python install")
    bin="$UV_PYTHON_INSTALL_DIR/cpython-$3.1/bin"
    /bin/mkdir -p "$bin"; printf '#!/bin/sh\\necho %s "$0"\\n' "$3" > "$bin/python$3"; /bin/chmod +x "$bin/python$3" ;;
esac"""
    source = script(tmp_path / "index/uv", body)
    pip = f"""echo "$*" >> {tmp_path}/pip
while [ "$1" != --target ]; do shift; done
/bin/mkdir -p "$2/bin" && /bin/cp {source} "$2"/bin/uv"""
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "driver/python", pip)))
    return tmp_path


def bring(*versions):
    told = []
    try:
        interpreters.find(versions)
    except interpreters.NoPython as absent:
        return bring_python.bring(versions, places.root(), absent, told.append), told
    raise AssertionError("a Python is here already")


def test_uv_is_installed_into_our_folder_and_brings_the_preferred_python(uv):
    found, told = bring("3.13", "3.12")
    assert found == ("3.13", uv / "envs/pythons/cpython-3.13.1/bin/python3.13")
    assert f"--target {uv}/envs/uv uv" in (uv / "pip").read_text()
    assert told == [f"no Python 3.12 to 3.13 is here: uv fetches Python 3.13 into {uv}/envs/pythons"]


def test_what_was_brought_is_found_afterwards_and_uv_is_kept(uv):
    bring("3.13")
    assert interpreters.find(["3.13"]).path.is_relative_to(uv / "envs")
    bring("3.12")
    assert len((uv / "pip").read_text().splitlines()) == 1


def test_a_uv_on_path_is_used(uv):
    (uv / "path").mkdir()
    (uv / "path/uv").symlink_to(uv / "index/uv")
    assert bring("3.13")[0].version == "3.13" and not (uv / "pip").exists()


def test_a_python_that_uv_cannot_bring_is_refused_with_its_words_and_the_remedy(uv):
    with pytest.raises(WrongUse) as caught:
        bring("3.6")
    assert str(caught.value) == (
        "Python 3.6 is needed and was not found on PATH, in pyenv or in uv.\n"
        "uv could not bring Python 3.6: Caused by: no 3.6; UV_PYTHON_INSTALL_MIRROR names a mirror\n"
        "Install it: `apt-get install python3.6 python3.6-venv`, `pyenv install 3.6` or `uv python install 3.6`")


def test_a_pip_that_reaches_no_index_is_quoted(uv, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(script(uv / "driver/offline", "echo 'ERROR: No matching distribution' >&2; exit 1")))
    with pytest.raises(WrongUse, match=r"uv could not bring Python 3\.13: ERROR: No matching distribution; UV"):
        bring("3.13")


@pytest.mark.parametrize(("options", "fault"), [
    (["pytorch=/a", "pytorch=/b"], "pytorch: given twice; name one"),
    (["pytorch==2.13.0=/a", "pytorch==2.13.0=/b"], "pytorch==2.13.0: given twice"),
    (["pytorch == 2.13.0=/a", "pytorch==2.13.0=/b"], "pytorch==2.13.0: given twice"),
    (["pytorch=/a", "pytorch==2.13.0=/b"], "pytorch: given twice, once for all releases and once for pytorch==2.13.0"),
    (["pytorch"], "write FRAMEWORK=PATH"),
])
def test_an_interpreter_given_twice_is_refused(options, fault):
    with pytest.raises(WrongUse, match=fault):
        interpreters.named(options)


def test_two_releases_have_an_interpreter_each():
    assert interpreters.named(["pytorch==2.12.0=/a", "pytorch==2.13.0=/b", "jax=/c=d"]) == {
        "pytorch==2.12.0": Path("/a"), "pytorch==2.13.0": Path("/b"), "jax": Path("/c=d")}
