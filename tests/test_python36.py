"""Every file that an old framework's Python loads compiles with that Python, if one is found.

Which files and which Python follow from configs/frameworks: the protocol, the runner, and the
planted faults of the tests. Only the syntax is judged here. A library's newer function shows when
that framework's runner is tested.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.environments import interpreters, recipes
from harness.errors import WrongUse

CHECKOUT = Path(__file__).resolve().parents[1]
EVERY_WORKER = ["runners/__init__.py", "runners/__main__.py", "runners/protocol.py",
                "runners/arrays.py", "runners/comparisons.py", "runners/session.py",
                "runners/resources.py", "runners/wire.py",
                "tests/faults/__init__.py"]
COMPILE = ("import sys; "
           "[compile(open(path, encoding='utf-8').read(), path, 'exec') for path in sys.argv[1:]]")


def old_pythons():
    """Every pair of a framework and a Python older than this one that a release of it may have."""
    pairs = {(name, python) for name in recipes.names()
             for recipe in recipes.load(name).releases.values() for python in recipe.python}
    return sorted((name, python) for name, python in pairs
                  if tuple(map(int, python.split("."))) < sys.version_info[:2])


def files_of(framework):
    loaded = recipes.load(framework)
    package = (CHECKOUT / (loaded.runner or loaded.engine).replace(".", "/")).parent
    faults = CHECKOUT / "tests" / "faults"
    own = [*sorted(package.glob("*.py")), *sorted(faults.rglob(f"{framework}*.py"))]
    return [*EVERY_WORKER, *(str(path.relative_to(CHECKOUT)) for path in own)]


def compile_with(python, files):
    try:
        interpreter = interpreters.find([python]).path
    except WrongUse as missing:
        pytest.skip(str(missing))
    return subprocess.run([interpreter, "-c", COMPILE, *files], capture_output=True, text=True,
                          check=False, cwd=CHECKOUT)


@pytest.mark.parametrize(("framework", "python"), old_pythons())
def test_the_files_that_an_old_python_loads_are_written_for_it(framework, python):
    compiled = compile_with(python, files_of(framework))
    assert (compiled.returncode, compiled.stderr) == (0, "")


def test_cntk_and_the_reference_are_among_them():
    assert {("cntk", "3.6"), ("reference", "3.6")} <= set(old_pythons())
    assert {"runners/cntk/runner.py", "tests/faults/cntk.py"} <= set(files_of("cntk"))


def test_a_newer_syntax_is_found(tmp_path):
    (tmp_path / "walrus.py").write_text("(number := 1)\n", encoding="utf-8")
    compiled = compile_with("3.6", [str(tmp_path / "walrus.py")])
    assert compiled.returncode == 1
    assert "walrus.py" in compiled.stderr and "SyntaxError" in compiled.stderr
