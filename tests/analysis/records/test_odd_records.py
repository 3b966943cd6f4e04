"""Whatever one change leaves of a campaign's folder, readers take it or name what is wrong in one short line."""

import contextlib
import copy
import csv
import io
import json
import os
import random
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.compare import verdicts
from analysis.display import provenance
from analysis.records import manifest, reader
from analysis.records.text import LONGEST_MESSAGE, BadRecords
from analysis.report import report
from analysis.trials import summary
from tests.slow import slow_but

REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
SMALL = Path(__file__).parents[1] / "recorded" / "h200-fcn5"
NESTED = 3000 * "[" + 3000 * "]"
ODD = (
    None, True, False, "", "x", "nan", "\x1b[2J", "a\nb", "\ud800", "[/x]", 0, -1, 1, 3, 10**30,
    1.5, float("nan"), float("inf"), -0.0, 1e308, [], {}, [None], [[]], {"": {}}, ["a"], "9" * 6000,
    "z" * 200_000)
CELLS = ("", "nan", "inf", "-inf", "1e400", "-1", "0", "1.5", "9" * 6000, "x", "ok", "None",
         "1e300", "a\nb", "\x1b[2J", "\0", "é" * 10, "z" * 140_000,
         "2016-08-25T00:00:00+00:00", "\"", "0x10")
BYTES = (b"", b"\xff\xfe\x00", b"\0", b"{", b"}", b"null", b"[]", b"\n", b"\"", b",", b"9" * 6000,
         NESTED.encode(), b"NaN", b"\r\n")


@settings(REPEATABLE, max_examples=60)
@given(st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore:.*the last line is unfinished")
def test_a_changed_campaign_is_read_or_named(tmp_path_factory, draw):
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(SMALL, folder, dirs_exist_ok=True)
    change(folder, draw)
    try:
        reader.read(folder)
    except BadRecords as error:
        assert len(str(error)) <= 500 and str(error).isprintable()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", slow_but([111, 118], [*range(40), 111, 118]))
def test_reports_comparisons_and_audits_take_a_changed_campaign_or_name_it(tmp_path, seed):
    shutil.copytree(SMALL, tmp_path, dirs_exist_ok=True)
    change(tmp_path, random.Random(seed))
    assert list(faults(tmp_path)) == []


@pytest.mark.parametrize("part", ["cpu", "memory", "system", "gpus"])
def test_a_part_of_the_machine_may_be_null(tmp_path, part):
    shutil.copytree(SMALL, tmp_path, dirs_exist_ok=True)
    page = tmp_path / "campaign.json"
    meta = json.loads(page.read_text(encoding="utf-8"))
    meta["machine"][part] = None
    page.write_text(json.dumps(meta), encoding="utf-8")
    side = verdicts.recorded(reader.read(tmp_path))
    verdicts.refuse_other_hardware(side, side)
    assert "started" in dict(provenance.facts(side.campaign.meta))


def change(folder, draw):
    """Make one change to a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    tables = [path for path in files if path.suffix == ".csv" and path.parent == folder]
    kind = draw.choice(("value", "value", "value", "cell", "cell", "cell", "bytes", "cut", "column", "rows", "place"))
    if kind == "value":
        return _change_value(folder / "campaign.json", draw)
    file = draw.choice(tables if kind in ("cell", "column", "rows") else files)
    if kind == "bytes":
        content, part = file.read_bytes(), draw.choice(BYTES)
        place = draw.randint(0, len(content))
        file.write_bytes(content[:place] + part + content[place + draw.choice((0, len(part))):])
    elif kind == "cut":
        os.truncate(file, draw.randint(0, file.stat().st_size))
    elif kind == "place":
        _replace(file, draw)
    else:
        _change_table(file, kind, draw)


def faults(folder):
    """Yield what readers of the campaign in `folder` must not do."""
    with tempfile.TemporaryDirectory(prefix="dlbench-odd-") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reads = {"report": lambda: _report(folder, Path(out)),
                 "compare": lambda: verdicts.recorded(reader.read(folder)),
                 "audit": lambda: (audit.audit(folder), audit.unchecked(folder), audit.origin(folder))}
        for name, read in reads.items():
            try:
                found = read()
            except BadRecords as error:
                if len(str(error)) > LONGEST_MESSAGE or not str(error).isprintable():
                    yield f"{name}: a message of {len(str(error))} characters: {error!s:.200}"
                continue
            if name == "audit":
                yield from (f"audit: a finding that is not one line: {part!r:.100}"
                            for finding in found[0] for part in finding if not part.isprintable())


def _report(folder, out):
    campaign = reader.read(folder)
    report.terminal_table(campaign)
    report.write_derived([(campaign, summary.summarise(campaign))], out, plots=False)


def _change_value(page, draw):
    meta = json.loads(page.read_text(encoding="utf-8"))
    place = meta
    while isinstance(place, dict | list) and place:
        parent, key = place, draw.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
        place = parent[key]
        if draw.random() < 0.3:
            break
    if draw.random() < 0.2:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(draw.choice(ODD))
    page.write_text(json.dumps(meta), encoding="utf-8")


def _change_table(file, kind, draw):
    rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
    row, column = draw.randrange(len(rows)), draw.randrange(len(rows[0]))
    if kind == "cell":
        rows[row][column] = draw.choice(CELLS)
    elif kind == "column":
        for each in rows:
            each[column:column + 1] = draw.choice(([], 2 * each[column:column + 1]))
    else:
        rows[row:row + 1] = draw.choice(([], 2 * [rows[row]], [rows[row][:-1]]))
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, lineterminator="\n").writerows(rows)


def _replace(file, draw):
    """Put something in the place of a file, or beside it."""
    hidden = file.with_name(f".{file.name}")

    def instead(make):
        file.unlink()
        make(file)

    kinds = {
        "gone": file.unlink, "a folder": lambda: instead(Path.mkdir), "a FIFO": lambda: instead(os.mkfifo),
        "a link to itself": lambda: instead(lambda path: path.symlink_to(path)),
        "a link to nothing": lambda: instead(lambda path: path.symlink_to("/no/such/file")),
        "a link to zeros": lambda: instead(lambda path: path.symlink_to("/dev/zero")),
        "beside a FIFO": lambda: os.mkfifo(hidden), "beside a link": lambda: hidden.symlink_to("/etc/passwd"),
        "packed badly": lambda: instead(lambda path: path.with_name(f"{path.name}.gz").write_bytes(b"\x1f\x8b\x08junk"))}
    kinds[draw.choice(list(kinds))]()
    with contextlib.suppress(OSError):
        manifest.write_manifest(file.parent)
