"""Says how much pip is about to download, before it does.

pip's own dry run lists the files; a server tells their sizes. Where either cannot, nothing is said.
"""

import http.client
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from harness.environments.commands import ask

# Older ones download everything in a dry run too.
PIP = (23, 3)
SECONDS = 120
ANSWER_SECONDS = 5
# Files that are asked for at a time.
JOBS = 8


def describe(python: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return "12 packages, 211 MB to download (torch 176 MB)", or "" where that is not known."""
    pip = [str(python), "-m", "pip"]
    if _version(pip, variables) < PIP:
        ask([*pip, "install", "--quiet", "--upgrade", "pip"], SECONDS, variables)
        if _version(pip, variables) < PIP:
            return ""
    report = ask([*pip, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-",
                  *arguments], SECONDS, variables).stdout
    try:
        listed = {each["metadata"]["name"]: each["download_info"]["url"]
                  for each in json.loads(report)["install"]}
    except (ValueError, KeyError, TypeError):
        return ""
    with ThreadPoolExecutor(JOBS) as pool:
        sizes = dict(zip(listed, pool.map(_size, listed.values()), strict=True))
    if not listed or not all(sizes.values()):
        return ""
    largest = max(sizes, key=lambda name: sizes[name])
    cuda = any(name.startswith("nvidia-") for name in listed)
    many = "package" if len(listed) == 1 else "packages"
    return (f"{len(listed)} {many}, {_text(sum(sizes.values()))} to download "
            f"({largest} {_text(sizes[largest])}{', with CUDA' if cuda else ''})")


def _version(pip: list[str], variables: Mapping[str, str]) -> tuple[int, int]:
    said = re.match(r"pip (\d+)\.(\d+)", ask([*pip, "--version"], SECONDS, variables).stdout)
    return (int(said[1]), int(said[2])) if said else (0, 0)


def _size(url: str) -> int:
    """Return the bytes of a file, or 0 where its server does not say."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(unquote(parts.path)).stat().st_size
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return int(answer.headers["Content-Length"] or 0)
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return 0


def _text(count: int) -> str:
    unit, name = (1e9, "GB") if count >= 1e9 else (1e6, "MB")
    return f"{count / unit:.3g} {name}"
