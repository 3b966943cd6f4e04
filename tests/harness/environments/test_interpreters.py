"""Finding a Python: candidates are shell scripts here, so nothing depends on what this machine has installed."""

from pathlib import Path

import pytest

from harness.environments import interpreters
from harness.errors import WrongUse


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))


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
    assert interpreters.find("3.11") == wanted


def test_a_pyenv_shim_that_cannot_run_is_passed_over(tmp_path):
    script(tmp_path / "path/python3.9", 'echo "pyenv: python3.9: command not found" >&2; exit 127')
    wanted = python(tmp_path / "pyenv/versions/3.9.18/bin/python3.9", "3.9")
    assert interpreters.find("3.9") == wanted


def test_a_broken_shim_does_not_hide_the_next_folder_of_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{tmp_path}/second")
    script(tmp_path / "path/python3.11", "exit 127")
    wanted = python(tmp_path / "second/python3.11", "3.11")
    assert interpreters.find("3.11") == wanted


def test_the_newest_patch_of_pyenv_is_taken(tmp_path):
    python(tmp_path / "pyenv/versions/3.9.9/bin/python3.9", "3.9")
    wanted = python(tmp_path / "pyenv/versions/3.9.18/bin/python3.9", "3.9")
    python(tmp_path / "pyenv/versions/3.9-dev/bin/python3.9", "3.9")
    assert interpreters.find("3.9") == wanted


def test_uv_is_asked_last(tmp_path):
    wanted = python(tmp_path / "uv-pythons/python3.6", "3.6")
    script(tmp_path / "path/uv", f'[ "$*" = "python find --no-project 3.6" ] && echo {wanted}')
    assert interpreters.find("3.6") == wanted


def test_the_interpreter_behind_a_shim_is_returned(tmp_path):
    behind = python(tmp_path / "elsewhere/python3.11", "3.11")
    script(tmp_path / "path/python3.11", f'exec {behind} "$@"')
    assert interpreters.find("3.11") == behind


def test_nothing_found_says_what_was_tried_and_how_to_get_it(tmp_path):
    script(tmp_path / "path/python3.6", 'echo "Traceback" >&2; echo "ModuleNotFoundError: No module named ensurepip" >&2; exit 1')
    python(tmp_path / "pyenv/versions/3.6.15/bin/python3.6", "3.7")
    with pytest.raises(WrongUse) as caught:
        interpreters.find("3.6")
    assert str(caught.value) == (
        "Python 3.6 is needed and was not found on PATH, in pyenv or in uv.\n"
        f"  {tmp_path}/path/python3.6: ModuleNotFoundError: No module named ensurepip\n"
        f"  {tmp_path}/pyenv/versions/3.6.15/bin/python3.6: is Python 3.7\n"
        "Install it with `uv python install 3.6`, `pyenv install 3.6`, or `apt-get install python3.6 python3.6-venv` where the "
        "system has that version."
    )
