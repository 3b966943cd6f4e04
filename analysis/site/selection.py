"""Chooses the folders of results that the site shows: those that results/published.txt lists.

The file has a folder's name a line; what follows a # is a comment. Results without such a file are
shown whole, less what no list may name: planted faults that stand as frameworks of their own, and
campaigns that stopped before each row had the processes that an interval needs.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from analysis.records import reader
from analysis.records.pages import read_page
from analysis.records.text import BadRecords
from analysis.statistics.bootstrap import MINIMUM_PROCESSES

LIST = "published.txt"


def choose(results: Path, frameworks: Collection[str]) -> tuple[list[Path], dict[str, str]]:
    """Return the folders to show, and by name why each of the others is left out.

    `frameworks` are those with a recipe. Raises BadRecords where a listed folder cannot be shown.
    """
    names = sorted(path.name for path in results.iterdir() if path.is_dir())
    lines = listed(results)
    chosen, left = [], {}
    for name in names:
        reason = "not listed" if lines and name not in lines else _fault(results / name, frameworks)
        if reason and name in lines:
            raise BadRecords(f"{results / LIST}: line {lines[name]}: {name}: {reason}; "
                             "take the line out")
        if reason:
            left[name] = reason
        else:
            chosen.append(results / name)
    for name in lines.keys() - set(names):
        raise BadRecords(f"{results / LIST}: line {lines[name]}: {name}: no such folder beside the "
                         "list; mend the name or take the line out")
    return chosen, left


def listed(results: Path) -> dict[str, int]:
    """Return the number of the line that lists each folder; empty without a list."""
    file = results / LIST
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise BadRecords(f"{file}: not UTF-8; write a folder's name a line") from None
    names = (line.partition("#")[0].strip() for line in lines)
    found = {name: number for number, name in enumerate(names, start=1) if name}
    if not found:
        raise BadRecords(f"{file}: lists no folder; write a folder's name a line, or remove it")
    return found


def _fault(folder: Path, frameworks: Collection[str]) -> str:
    """Say why a folder cannot be shown, or nothing."""
    for file in sorted(folder.glob("**/campaign.json")):
        page = read_page(file, "name a folder with records")
        if not page.get("finished") and (fault := _too_early(file, page)):
            return fault
        named = dict.fromkeys(str(trial.get("framework")) for trial in page.get("trials") or ())
        planted = [name for name in named if name not in frameworks]
        if planted:
            return f"{', '.join(planted)}: no framework has this name, so it is a planted fault"
    return ""


def _too_early(file: Path, page: dict[str, Any]) -> str:
    """Say which row of a campaign that stopped lacks processes for an interval, or nothing."""
    ran = Counter(reader.read(file.parent).processes["trial"])
    short = [trial["trial"] for trial in page.get("trials") or ()
             if trial.get("status") == "planned" and ran[trial["trial"]] < MINIMUM_PROCESSES]
    if not short:
        return ""
    return (f"unfinished: {ran[short[0]]} processes of {short[0]}, and an interval needs "
            f"{MINIMUM_PROCESSES} (`dlbench run --resume` goes on)")
