"""A machine with one Python alone, without git, compilers and a home to write to: dlbench finds that Python and plans with it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.environments import interpreters, recipes
from tests.slow import slow_but

ROOT = Path(__file__).parents[2]
DLBENCH = [sys.executable, "-c", "from harness.start import main; main()"]


COMMANDS = """
scripts/find-python
command -v git gcc g++ cc uv python3.11 || echo nothing else
mkdir ~/x 2>/dev/null || echo no home
make help | grep -c '^bench'
{dlbench} doctor --json > doctor.json; python3 -c "import json; print(json.dumps(json.load(open('doctor.json'))['frameworks']))"
{dlbench} run smoke --dry-run
"""


# .ci/run sets dlbench up so, and proves a network.
@pytest.mark.parametrize("version", slow_but([], ["3.10", "3.12", "3.13", "3.14"]))
def test_one_python_is_found_and_a_campaign_is_planned_without_git_compilers_and_home(version):
    try:
        interpreters.find([version])
    except interpreters.NoPython as absent:
        pytest.skip(str(absent).partition("\n")[0])
    commands = COMMANDS.format(dlbench=shlex.join(DLBENCH))
    ran = subprocess.run([ROOT / "scripts/one-python", version, "bash", "-c", commands], capture_output=True, text=True, check=True)
    python, nothing, home, targets, frameworks, *_, plan = ran.stdout.splitlines()
    assert python.endswith(f"/path/python{version}") and (nothing, home, targets) == ("nothing else", "no home", "1")
    assert plan.endswith("Nothing was started.") and "refused" not in ran.stdout
    # The driver's own Python is here too.
    for each in json.loads(frameworks):
        if each["name"] in ("pytorch", "tensorflow", "paddle"):
            pythons = recipes.load(each["name"]).recipe(each["release"]).python
            assert each["python"] == next(each for each in pythons if each in (version, recipes.DRIVER))


def test_a_python_that_is_not_here_is_named():
    ran = subprocess.run([ROOT / "scripts/one-python", "3.99", "true"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "no Python 3.99 with venv here, on PATH or in pyenv\n")
