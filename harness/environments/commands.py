"""Runs other programs, such as pip and uv, and waits for their output."""

import os
import subprocess
from collections.abc import Mapping, Sequence


def clean_variables() -> dict[str, str]:
    """Return the variables without those that lead a foreign Python to our packages."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME")}


def ask(command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None
        ) -> subprocess.CompletedProcess[str]:
    """Run a command; if it cannot run or takes too long, it "fails" and its errors say so."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                              env=variables, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def complaint(failed: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a failed command's errors, or its exit code if there is none."""
    lines = failed.stderr.strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {failed.returncode}"
