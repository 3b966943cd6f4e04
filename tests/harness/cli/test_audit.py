"""A campaign proves itself: an edited digit is caught by its hash, and where the hash was made anew, by what it contradicts."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.audit import audit
from analysis.records import manifest, packed, reader
from analysis.records.text import BadRecords
from analysis.report import report
from analysis.trials import summary
from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.cli import publish, reports
from harness.errors import WrongUse
from harness.machine import hardware
from harness.plan.suite import Suite
from harness.records import lock
from tests import recorded
from tests.slow import slow_where

ROOT = Path(__file__).parents[3]
# Two processes: from three on, a busy machine can make such short windows look badly timed.
SUITE = {"frameworks": "reference", "networks": ["tiny_fcn", "tiny_lstm"], "batches": 4, "device": "cpu", "threads": 1,
         "processes": 2, "windows": 2, "window_seconds": 0.002, "peaks": False, "data": "host",
         "interpreters": {"reference": sys.executable}}
KINDS = (".csv", ".json", ".md", ".html", "")  # the last is SHA256SUMS
INTERRUPTED = {
    "h200-inference-2026-11-26", "h200x2-model-parallel-2026-11-26",
    "h200x2-scaling-tensorflow-2026-11-26", "h200x2-scaling-tuned-tensorflow-2026-11-28",
    "h200-fcn5-host-2026-11-21",
    "h200x4-strategies-nine-2026-11-22", "h200x4-strategies-nine-p2p-off-2026-11-22",
    "h100x4-scaling-tuned-2026-11-28", "h200-transformers-2026-11-23", "h200-transformers-2026-11-24",
    "h200-attention-2026-11-23", "h200-stock-tf32-2026-11-28"}
PUBLISHED = [folder for folder in recorded.folders() if (folder / "campaign.json").exists() or ((folder / "study.json").exists()
             and any(kind in folder.name for kind in ("-links-", "-attention-")))]


MANY_BYTES = 210_000


def takes_seconds(folder: Path) -> bool:
    """Tell records of many rows; the small ones hold every kind."""
    return sum(path.stat().st_size for path in folder.rglob("*")) > MANY_BYTES


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A real campaign of four processes, with its report and manifest."""
    folder = tmp_path_factory.mktemp("audit") / "campaign"
    prepared = campaign.prepare(Suite.model_validate(SUITE), "suite.yaml")
    campaign.run(prepared, folder, Listener())
    report.write([folder], folder)
    manifest.write_manifest(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "campaign")


def places(folder: Path) -> list[tuple[str, int]]:
    """A digit in every part of every file: (file, position), some twenty of each of the larger ones."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file()):
        digits = [position for position, byte in enumerate(path.read_bytes()) if 48 <= byte <= 57]
        found += [(path.relative_to(folder).as_posix(), position) for position in digits[:: max(1, len(digits) // 20)]]
    return found


def flip(path: Path, position: int) -> None:
    text = bytearray(path.read_bytes())
    text[position] = 48 + (text[position] - 48 + 5) % 10
    path.write_bytes(text)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def put(path: Path, line: int, column: str, change: Callable[[str], str]) -> list[str]:
    """Change one cell of a CSV and return its row."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    row, position = rows[line - 1], rows[0].index(column)
    assert change(row[position]) != row[position]
    row[position] = change(row[position])
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return row


def test_a_finished_campaign_holds(original):
    assert audit.audit(original) == []
    listed = [line.partition("  ")[2] for line in (original / "SHA256SUMS").read_text().splitlines()]
    assert {"campaign.json", "processes.csv", "windows.csv", "trials.csv", "report.html", "tables/times.csv"} < set(listed)
    assert sum(name.startswith("logs/") for name in listed) == len(list((original / "logs").iterdir())) > 0


def test_one_digit_edited_anywhere_is_caught_by_its_hash(folder):
    seen = set()
    for file, position in places(folder):
        flip(folder / file, position)
        caught = {name for name, _, _ in manifest.check_manifest(folder)}
        assert caught, (file, position)
        assert file == "SHA256SUMS" or caught == {file}
        before = (folder / file).read_bytes()[position]
        flip(folder / file, position)
        assert (folder / file).read_bytes()[position] != before
        seen.add(file)
    assert {"windows.csv", "processes.csv", "trials.csv", "campaign.json", "report.md", "report.html", "tables/times.csv",
            "SHA256SUMS"} <= seen
    assert manifest.check_manifest(folder) == []


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_report_does_not_hide_damaged_records(folder, damage):
    logs = sorted((folder / "logs").iterdir())
    file = logs[0]
    if damage == "cut":
        file.write_bytes(file.read_bytes() + b"later\n")
    else:
        file.unlink()
    reports.write_report([folder], folder)
    assert [name for name, _, _ in manifest.check_manifest(folder)] == [f"logs/{file.name}"]


@pytest.mark.parametrize("name", ["processes.csv", "windows.csv"])
def test_a_finished_campaign_that_lost_a_table_is_not_reported(folder, name):
    (folder / name).unlink()
    before = (folder / "trials.csv").read_bytes()
    with pytest.raises(WrongUse, match=rf"{name}: has no row, though the campaign has finished; restore"):
        reports.write_report([folder], folder)
    assert (folder / "trials.csv").read_bytes() == before


def test_a_process_of_an_odd_status_is_not_reported(folder):
    table = folder / "processes.csv"
    table.write_text(table.read_text().replace(",ok,", ",fine,", 1))
    with pytest.raises(WrongUse, match="has the status 'fine', not one of ok, unsupported, failed; restore"):
        reports.write_report([folder], folder)


def test_packing_leaves_a_folder_that_is_no_result_as_it_is(folder):
    above = folder.parent
    for name in ("talk.md", "talk.html", "figure.svg", "figure.png"):
        (above / name).write_text("mine")
    with pytest.raises(WrongUse, match="is no campaign, study or comparison; name a folder"):
        publish.pack([above])
    (above / "compare.csv").write_text("a comparison\n")
    publish.pack([above])
    assert {"talk.html", "figure.png"} <= {path.name for path in above.iterdir()}
    assert (folder / packed.LOGS).exists()


def test_a_campaign_that_is_measured_is_not_packed(folder):
    with lock.held(folder), pytest.raises(WrongUse, match=r"process \d+ on .* measures into it: wait"):
        publish.pack([folder])
    assert (folder / "logs").is_dir()


def test_logs_beside_packed_logs_are_not_packed(folder):
    publish.pack([folder])
    (folder / "logs").mkdir()
    before = (folder / packed.LOGS).read_bytes()
    with pytest.raises(BadRecords, match=r"holds logs/ and logs\.tar\.gz, and packing would replace the archive; move"):
        publish.pack([folder])
    assert (folder / packed.LOGS).read_bytes() == before


def test_damaged_records_are_not_packed(folder):
    flip(folder / "windows.csv", 200)
    before = manifest.check_manifest(folder)
    with pytest.raises(BadRecords, match=r"windows\.csv: its hash in SHA256SUMS does not hold .*; restore it"):
        packed.pack_folder(folder)
    assert [name for name, _, _ in before] == ["windows.csv"] and manifest.check_manifest(folder) == before


def test_a_file_that_is_gone_and_one_that_came_are_named(folder):
    (folder / "tables" / "times.csv").unlink()
    (folder / "notes.txt").write_text("later\n")
    faults = {name: (expected[:8], found) for name, expected, found in manifest.check_manifest(folder)}
    assert faults["tables/times.csv"] == ("SHA-256 ", "no such file")
    assert faults["notes.txt"][0] == "to be li"


@pytest.mark.parametrize(("name", "plant", "found"), [
    ("tables/elsewhere.csv", lambda path: path.symlink_to("/etc/passwd"), "a link"),
    ("logs/away", lambda path: path.symlink_to("/etc", target_is_directory=True), "a link"),
    ("tables/.kept.csv", lambda path: path.write_text("1\n"), "a hidden file"),
    ("tables/SHA256SUMS", lambda path: path.write_text(""), "another manifest"),
    ("logs/pipe", os.mkfifo, "neither a file nor a folder")])
def test_what_may_lead_out_of_a_campaign_or_hide_in_it_is_named(folder, name, plant, found):
    assert manifest.check_manifest(folder) == []
    plant(folder / name)
    assert manifest.check_manifest(folder) == [(name, "nothing of this name, or a regular file", found)]


# (file, what stands there, what is put there, the file and the column that a finding then names)
TEXTS = [
    ("report.md", "| tiny_fcn | ", "| tiny_fcn | 9", "report.md", None),
    ("report.html", "<dt>started</dt><dd>20", "<dt>started</dt><dd>19", "report.html", None),
    ("campaign.json", '"parameters": ', '"parameters": 1', "campaign.json", "parameters"),
    ("campaign.json", '"flops_per_step": ', '"flops_per_step": 9', "campaign.json", "flops_per_step"),
    ("campaign.json", '"numpy==', '"nothing', "campaign.json", "environments.packages"),
    ("campaign.json", '"batch": 4,\n   "devices"', '"batch": 5,\n   "devices"', "trials.csv", "batch"),
    ("campaign.json", '"processes_planned": 2', '"processes_planned": 3', "processes.csv", "process"),
    ("campaign.json", '"schema": 1', '"schema": 2', "campaign", ""),
    ("campaign.json", '"machine": {', '"machine": 7, "other": {', "campaign", ""),
    ("campaign.json", "{", "", "campaign", ""),
]
# (file, column, what is put into its first row, the file and the column that a finding then names)
CELLS = [
    ("trials.csv", "verified", "no", "trials.csv", "verified"),
    ("trials.csv", "windows", "7", "trials.csv", "windows"),
    ("trials.csv", "reason", "none", "trials.csv", "reason"),
    ("tables/times.csv", "verified", "no", "tables/times.csv", "verified"),
    ("tables/answer.csv", "batch", "5", "tables/answer.csv", "batch"),
    ("windows.csv", "steps", "2", "windows.csv", "step_seconds"),
    ("windows.csv", "steps", "0", "windows.csv", "steps"),
    ("windows.csv", "last_step", "2", "windows.csv", "last_step"),
    ("windows.csv", "window", "-50", "windows.csv", "window"),
    ("windows.csv", "process", "1.5", "campaign", ""),
    ("windows.csv", "loss", "9.75", "trials.csv", "verified"),
    ("processes.csv", "order", "5", "processes.csv", "order"),
    ("processes.csv", "process", "7", "processes.csv", "process"),
    ("processes.csv", "status", "fine", "processes.csv", "status"),
    ("processes.csv", "status", "failed", "processes.csv", "reason"),
    ("processes.csv", "check", "different", "trials.csv", "verified"),
    ("processes.csv", "window_steps", "3", "windows.csv", "steps"),
    ("processes.csv", "parameters", "3", "trials.csv", "verified"),
    ("processes.csv", "started", "2016-08-25T00:00:00+00:00", "processes.csv", "started"),
]


def named(folder: Path) -> set[tuple[str, str]]:
    """The (file, column) pairs of the audit of a folder whose manifest fits."""
    manifest.write_manifest(folder)
    findings = audit.audit(folder)
    return {(finding.file, finding.column) for finding in findings} | {(finding.file, None) for finding in findings}


@pytest.mark.parametrize(("file", "old", "new", "where", "column"), TEXTS)
def test_a_text_that_was_edited_and_hashed_anew_is_caught_by_what_it_contradicts(folder, file, old, new, where, column):
    edit(folder / file, old, new)
    assert (where, column) in named(folder)


@pytest.mark.parametrize(("file", "column", "value", "where", "told"), CELLS)
def test_a_cell_that_was_edited_and_hashed_anew_is_caught_by_what_it_contradicts(folder, file, column, value, where, told):
    put(folder / file, 2, column, lambda cell: value)
    assert (where, told) in named(folder)


@pytest.mark.parametrize("column", ["steps", "last_step", "start", "stop", "seconds", "step_seconds"])
@pytest.mark.parametrize("line", [2, 9, 17])
def test_a_time_or_count_of_any_window_is_caught_without_a_hash(folder, column, line):
    cells = put(folder / "windows.csv", line, column,
                lambda cell: repr(float(cell) * 1.01) if "." in cell else str(int(cell) + 1))
    found = audit.consistency.check(reader.read(folder))
    assert f"{cells[0]} process {cells[1]} window {cells[2]}" in {finding.row for finding in found}


def test_processes_that_overlap_are_named(folder):
    rows = [line.split(",") for line in (folder / "windows.csv").read_text().splitlines()]
    first = float(rows[1][5])
    late = next(index for index, row in enumerate(rows[1:], start=1) if row[:2] != rows[1][:2])
    shift = float(rows[late][5]) - first
    for row in rows[late:]:
        if row[:2] == rows[late][:2]:
            row[5], row[6] = repr(float(row[5]) - shift), repr(float(row[6]) - shift)
    (folder / "windows.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    found = [finding for finding in audit.consistency.check(reader.read(folder)) if finding.column == "start"]
    assert [(finding.file, finding.row) for finding in found] == [("windows.csv", f"{rows[late][0]} process {rows[late][1]}")]


@pytest.mark.parametrize("file", ["processes.csv", "windows.csv"])
def test_a_row_cut_off_is_named(folder, file):
    (folder / file).write_text((folder / file).read_text()[:-8])
    assert (file, "") in named(folder)


@pytest.mark.parametrize("file", ["processes.csv", "windows.csv"])
def test_a_last_row_taken_away_is_named(folder, file):
    (folder / file).write_text("".join((folder / file).read_text().splitlines(keepends=True)[:-1]))
    assert {("processes.csv", "process"), ("windows.csv", "window")} & named(folder)


def test_an_interrupted_campaign_does_not_pass_as_finished(folder):
    meta = json.loads((folder / "campaign.json").read_text())
    (folder / "campaign.json").write_text(json.dumps({**meta, "finished": None}, indent=1))
    report.write([folder], folder)
    manifest.write_manifest(folder)
    assert [finding[:3] for finding in audit.audit(folder)] == [("campaign.json", "", "finished")]


def test_a_campaign_without_a_manifest_says_so_and_how_to_get_one(folder):
    (folder / "SHA256SUMS").unlink()
    assert audit.audit(folder) == [audit.Finding("SHA256SUMS", "", "", "a manifest", "none: `dlbench report` writes it")]


def rows_of(folder: Path) -> list[audit.Finding]:
    campaign = reader.read(folder)
    return audit._rows(campaign, summary.summarise(campaign))


def test_rounding_in_the_last_digits_is_no_finding_and_a_millionth_is_one(folder):
    for factor, count in ((1 + 1e-12, 0), (1 + 1e-6, 1)):
        put(folder / "trials.csv", 2, "step_seconds", lambda cell, factor=factor: repr(float(cell) * factor))
        found = [(finding.file, finding.row, finding.column) for finding in rows_of(folder)]
        assert found == [("trials.csv", "line 2", "step_seconds")] * count


def test_many_findings_of_one_file_are_counted():
    findings = [audit.Finding("windows.csv", str(number), "", "", "") for number in range(50)]
    shortened = list(audit._shortened(findings))
    assert (len(shortened), shortened[-1].found) == (audit.MOST_FINDINGS + 1, "and 30 findings more")


def test_a_table_that_lacks_its_last_column_is_named(folder):
    with (folder / "trials.csv").open(newline="") as file:
        rows = list(csv.reader(file))  # a reason may hold a comma
    with (folder / "trials.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(row[:-1] for row in rows)
    found = rows_of(folder)
    assert (found[0].file, found[0].row, found[0].column) == ("trials.csv", "line 1", rows[0][-1])


def test_a_packed_campaign_holds_and_its_raw_rows_are_still_checked(folder, monkeypatch):
    monkeypatch.setattr(packed, "LEAST_BYTES", 0)
    packed.pack_folder(folder)
    assert not [path for path in folder.rglob("*") if path.suffix in (".html", ".png", ".log")]
    assert (folder / "windows.csv.gz").exists()
    assert audit.audit(folder) == []
    packed.unpack(folder / "windows.csv")
    put(folder / "windows.csv", 2, "steps", lambda cell: "2")
    packed.pack(folder / "windows.csv", 0)
    assert ("windows.csv", "step_seconds") in named(folder)


@pytest.mark.parametrize("folder", slow_where(takes_seconds, PUBLISHED), ids=lambda path: path.name)
def test_every_published_campaign_holds(folder):
    found = [(finding.file, finding.row or finding.column) for finding in audit.audit(folder)]
    page = "study.json" if (folder / "study.json").exists() else "campaign.json"
    allowed = [(page, "finished")] if folder.name in INTERRUPTED else []
    assert found == allowed, "where a release derives another number: `dlbench report FOLDER` makes the files again"


def test_the_source_hash_follows_the_source_and_nothing_else(tmp_path):
    for name in ("harness/a.py", "configs/b.yaml", "analysis/c.j2", "docs/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    first = manifest.source_hash(tmp_path)
    (tmp_path / "docs/d.md").write_text("2\n")
    assert manifest.source_hash(tmp_path) == first
    for name in ("harness/a.py", "configs/b.yaml", "analysis/c.j2"):
        (tmp_path / name).write_text("2\n")
        assert manifest.source_hash(tmp_path) != first
        (tmp_path / name).write_text("1\n")
    (tmp_path / "harness/a.py").rename(tmp_path / "harness/e.py")
    assert manifest.source_hash(tmp_path) != first


def test_a_campaign_names_its_source_and_audit_says_whether_this_checkout_is_it(folder):
    meta = json.loads((folder / "campaign.json").read_text())
    assert meta["source_hash"] == manifest.source_hash()
    assert audit.origin(folder).endswith("this checkout is the one that measured")
    (folder / "campaign.json").write_text(json.dumps({**meta, "source_hash": "0" * 64, "git_commit": "c0ffee", "git_dirty": None,
                                                      "git_commit_stated": True}))
    here = manifest.source_hash()[:12]
    assert audit.origin(folder) == f"commit c0ffee, stated and not checked; source {12 * '0'}; this checkout is another, {here}"
    (folder / "campaign.json").write_text(json.dumps({**meta, "git_commit": None, "resumed": ["with other sources"]}))
    assert audit.origin(folder).endswith(f"source {here}, resumed with other sources; this checkout is the one that measured")


def test_a_copy_without_git_may_be_told_its_commit_and_says_that_it_was_told(tmp_path, monkeypatch):
    monkeypatch.delenv("DLBENCH_COMMIT", raising=False)
    assert hardware.checkout(tmp_path) == {"commit": None, "dirty": None, "stated": False}
    monkeypatch.setenv("DLBENCH_COMMIT", "c0ffee")
    assert hardware.checkout(tmp_path) == {"commit": "c0ffee", "dirty": None, "stated": True}
    checked = hardware.checkout(ROOT)
    assert checked["stated"] is (checked["commit"] == "c0ffee")


@pytest.mark.parametrize(("change", "code"), [("", 0), ("edit", 1), ("remove", 2)])
def test_the_command_exits_with_0_1_or_2(folder, change, code):
    if change == "edit":
        put(folder / "tables" / "times.csv", 2, "verified", lambda cell: "no")
    if change == "remove":
        (folder / "campaign.json").unlink()
    answer = subprocess.run([sys.executable, "-c", "from harness.cli.main import main; main()", "audit", str(folder)], cwd=ROOT,
                            capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == code, answer
    said = {0: f"{folder}: all holds\n", 1: "tables/times.csv, line 2, verified: expected yes, found no\n",
            2: "campaign.json: no such file; name a folder that `dlbench run` wrote"}[code]
    assert said in (answer.stderr if code == 2 else answer.stdout)
