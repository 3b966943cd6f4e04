"""What .ci/run answers: its own commands are stood in for by ones that do nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.environments import recipes

CI = Path(__file__).parents[2] / ".ci/run"
DOES_NOTHING = "#!/bin/sh\n"
MAKE = """#!/bin/sh
echo "$1" >> called
[ "$1" != test-all ] || echo "$2" > frameworks
mkdir -p .venv/bin
cp /bin/true .venv/bin/dlbench
cp /bin/true .venv/bin/python
[ "$1" != "$FAILS" ]
"""


@pytest.mark.parametrize(("fails", "code", "called"), [
    ("nothing", 0, ["setup", "check", "test-all"]), ("check", 1, ["setup", "check"]), ("test-all", 1, ["setup", "check", "test-all"])])
def test_ci_fails_where_a_command_fails_and_only_there(fails: str, code: int, called: list[str], tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(CI, tmp_path / ".ci/run")
    for name, text in {
        "scripts/find-python": f"#!/bin/sh\necho {sys.executable}\n", "scripts/system-packages": DOES_NOTHING,
        "scripts/one-python": DOES_NOTHING, "path/make": MAKE,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path / 'path'}:/usr/bin:/bin"
    done = subprocess.run([tmp_path / ".ci/run"], env={**os.environ, "PATH": path, "FAILS": fails}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, (tmp_path / "called").read_text().split()) == (code, called), done.stderr
    assert "CI took 0 minutes" in done.stdout
    if "test-all" in called:
        # make ends a command at a newline.
        [line] = (tmp_path / "frameworks").read_text().splitlines()
        variable, _, frameworks = line.partition("=")
        assert variable == "FRAMEWORKS"
        assert {name.partition("==")[0] for name in frameworks.split()} <= set(recipes.names())
