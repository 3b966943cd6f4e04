"""Broken records: a campaign's folder with one change, and how its readers end.

A reader either reads the folder or raises BadRecords with one short line; the audit has findings.
Anything else is a fault.
"""

import contextlib
import copy
import csv
import io
import itertools
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.audit import audit
from analysis.compare import verdicts
from analysis.records import manifest, reader
from analysis.records.text import LONGEST_MESSAGE, BadRecords
from analysis.report import report
from analysis.trials import summary

SMALL = Path(__file__).parents[2] / "tests" / "analysis" / "recorded" / "h200-fcn5"
NESTED = 3000 * "[" + 3000 * "]"
ODD: tuple[Any, ...] = (
    None, True, False, "", "x", "nan", "\x1b[2J", "a\nb", "\ud800", "[/x]", 0, -1, 1, 3, 10**30,
    1.5, float("nan"), float("inf"), -0.0, 1e308, [], {}, [None], [[]], {"": {}}, ["a"], "9" * 6000,
    "z" * 200_000)
CELLS = ("", "nan", "inf", "-inf", "1e400", "-1", "0", "1.5", "9" * 6000, "x", "ok", "None",
         "1e300", "a\nb", "\x1b[2J", "\0", "é" * 10, "z" * 140_000,
         "2016-08-25T00:00:00+00:00", "\"", "0x10")
BYTES = (b"", b"\xff\xfe\x00", b"\0", b"{", b"}", b"null", b"[]", b"\n", b"\"", b",", b"9" * 6000,
         NESTED.encode(), b"NaN", b"\r\n")


def fuzz(seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield changed campaigns without end, each with what its readers must not do or ""."""
    copied = folder / "campaign"
    for number in itertools.count(seed):
        shutil.copytree(SMALL, copied)
        done = change(copied, random.Random(number))
        yield f"{number}: {done!a}", ascii("; ".join(faults(copied)))[1:-1]
        shutil.rmtree(copied)


def change(folder: Path, draw: random.Random) -> str:
    """Make one change to a folder; say which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    tables = [path for path in files if path.suffix == ".csv" and path.parent == folder]
    kind = draw.choice(("value", "value", "value", "cell", "cell", "cell", "bytes", "cut", "column",
                        "rows", "place"))
    if kind == "value":
        return _change_value(folder / "campaign.json", draw)
    file = draw.choice(tables if kind in ("cell", "column", "rows") else files)
    name = file.relative_to(folder).as_posix()
    if kind == "bytes":
        content, part = file.read_bytes(), draw.choice(BYTES)
        place = draw.randint(0, len(content))
        file.write_bytes(content[:place] + part + content[place + draw.choice((0, len(part))):])
        return f"{part[:20]!r} at byte {place} of {name}"
    if kind == "cut":
        size = draw.randint(0, file.stat().st_size)
        os.truncate(file, size)
        return f"{name} cut at {size}"
    if kind == "place":
        return f"{name} is {_replace(file, draw)}"
    return f"{name}: {_change_table(file, kind, draw)}"


def faults(folder: Path) -> Iterator[str]:
    """Yield what readers of the campaign in `folder` must not do."""
    with tempfile.TemporaryDirectory(prefix="dlbench-fuzz-") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reads = {"report": lambda: _report(folder, Path(out)),
                 "compare": lambda: verdicts.recorded(reader.read(folder)),
                 "audit": lambda: (audit.audit(folder), audit.unchecked(folder),
                                   audit.origin(folder))}
        for name, read in reads.items():
            try:
                found: Any = read()
            except BadRecords as error:
                if len(str(error)) > LONGEST_MESSAGE or not str(error).isprintable():
                    yield f"{name}: a message of {len(str(error))} characters: {error!s:.200}"
                found = None
            except Exception as error:
                place = error.__traceback__
                while place and place.tb_next:
                    place = place.tb_next
                where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
                yield f"{name}: {type(error).__name__}: {error!s:.200} at {where}"
                found = None
            if name == "audit" and found:
                yield from (f"audit: a finding that is not one line: {part!r:.100}"
                            for finding in found[0] for part in finding if not part.isprintable())


def _report(folder: Path, out: Path) -> None:
    campaign = reader.read(folder)
    report.terminal_table(campaign)
    report.write_derived([(campaign, summary.summarise(campaign))], out, plots=False)


def _change_value(page: Path, draw: random.Random) -> str:
    meta = json.loads(page.read_text(encoding="utf-8"))
    place, path = meta, []
    while isinstance(place, dict | list) and place:
        parent, key = place, draw.choice(list(place) if isinstance(place, dict)
                                         else list(range(len(place))))
        path.append(str(key))
        place = parent[key]
        if draw.random() < 0.3:
            break
    if draw.random() < 0.2:
        del parent[key]
        done = "removed"
    else:
        parent[key] = copy.deepcopy(draw.choice(ODD))
        done = f"set to {parent[key]!r:.30}"
    page.write_text(json.dumps(meta), encoding="utf-8")
    return f"{'.'.join(path)} {done}"


def _change_table(file: Path, kind: str, draw: random.Random) -> str:
    rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
    row, column = draw.randrange(len(rows)), draw.randrange(len(rows[0]))
    name = rows[0][column]
    if kind == "cell":
        rows[row][column] = draw.choice(CELLS)
        done = f"{name}, row {row + 1} is {rows[row][column]!r:.30}"
    elif kind == "column":
        for each in rows:
            each[column:column + 1] = draw.choice(([], 2 * each[column:column + 1]))
        done = f"column {name} removed or doubled"
    else:
        rows[row:row + 1] = draw.choice(([], 2 * [rows[row]], [rows[row][:-1]]))
        done = f"row {row + 1} removed, doubled or cut"
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, lineterminator="\n").writerows(rows)
    return done


def _replace(file: Path, draw: random.Random) -> str:
    """Put something in the place of a file, or beside it."""
    def beside(make: Callable[[Path], Any]) -> None:
        make(file.with_name(f".{file.name}"))

    def instead(make: Callable[[Path], Any]) -> None:
        file.unlink()
        make(file)

    kinds: dict[str, Callable[[], Any]] = {
        "gone": file.unlink, "a folder": lambda: instead(Path.mkdir),
        "a FIFO": lambda: instead(os.mkfifo),
        "a link to itself": lambda: instead(lambda path: path.symlink_to(path)),
        "a link to nothing": lambda: instead(lambda path: path.symlink_to("/no/such/file")),
        "a link to zeros": lambda: instead(lambda path: path.symlink_to("/dev/zero")),
        "beside a FIFO": lambda: beside(os.mkfifo),
        "beside a link": lambda: beside(lambda path: path.symlink_to("/etc/passwd")),
        "packed badly": lambda: instead(
            lambda path: path.with_name(f"{path.name}.gz").write_bytes(b"\x1f\x8b\x08junk"))}
    name = draw.choice(list(kinds))
    kinds[name]()
    with contextlib.suppress(OSError):
        manifest.write_manifest(file.parent)
    return name
