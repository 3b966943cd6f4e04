"""The folders of results that the repository holds. `make bench` writes its own beside them."""

import subprocess
from contextlib import suppress
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def folders() -> list[Path]:
    """Return the folders that git knows; all in a copy without git."""
    names = {path.name for path in RESULTS.iterdir()}
    with suppress(OSError, subprocess.CalledProcessError):
        listed = subprocess.run(["git", "-C", str(RESULTS), "ls-files", "-z"], capture_output=True, text=True, check=True)
        names &= {name.partition("/")[0] for name in listed.stdout.split("\0")}
    return sorted(RESULTS / name for name in names if (RESULTS / name).is_dir())
