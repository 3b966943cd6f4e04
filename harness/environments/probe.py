"""Asks an interpreter which Python it is and which packages it has."""

import json
import subprocess
from typing import Any

from harness.errors import WrongUse

PROBE_SECONDS = 60
# Runs in any Python from 3.6. It reads packages' metadata and does not import the framework.
PROGRAM = """
import json, sys
try:
    from importlib.metadata import distributions
    found = [(each.metadata["Name"], each.version) for each in distributions()]
except ImportError:
    import pkg_resources
    found = [(each.project_name, each.version) for each in pkg_resources.working_set]
packages = sorted(set((name, version) for name, version in found if name))
print(json.dumps({"python": sys.version.split()[0], "packages": packages}))
"""


def ask(command: list[str], variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Ask an interpreter for its version and packages. Raises WrongUse if it does not answer."""
    interpreter = command[0]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS,
                                cwd="/", stdin=subprocess.DEVNULL, env=variables, check=True)
        return json.loads(answer.stdout)  # type: ignore[no-any-return]
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip()[-300:] or f"exit code {error.returncode}"
        raise WrongUse(f"{interpreter}: cannot list its packages ({said}); name the path of a "
                       "Python interpreter") from None
    except subprocess.TimeoutExpired:
        raise WrongUse(f"{interpreter}: no answer within {PROBE_SECONDS} s "
                       "when asked for its packages") from None
    except (OSError, ValueError) as error:
        raise WrongUse(f"{interpreter}: is not a Python interpreter that runs: {error}; "
                       "name another") from None


def release(distributions: list[str], packages: list[list[str]]) -> str | None:
    """Return the version of the first installed distribution; 2.13.0+cpu is release 2.13.0."""
    versions = {name.lower().replace("_", "-"): version for name, version in packages}
    found = (versions[name].partition("+")[0] for name in distributions if name in versions)
    return next(found, None)


def locked(answer: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}" for name, version in answer["packages"])
