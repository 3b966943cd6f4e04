"""A campaign whose files were damaged goes on: what they lost is measured again, the row says so, and the audit passes."""

import codecs
import csv
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.audit import audit
from analysis.records import reader
from analysis.records.text import BadRecords
from harness.campaign import session
from harness.campaign.recorder import Recorder
from harness.environments import store
from harness.environments.store import BuildFailed
from harness.errors import WrongUse
from harness.records import lock
from tests.harness.campaigns import run, table

ASKED = {"frameworks": ["one"], "networks": ["tiny_fcn", "tiny_lstm"], "processes": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("finished") / "campaign"


@pytest.fixture
def campaign_folder(finished, tmp_path, stand_in) -> Path:
    """A finished campaign of four processes, measured once for all tests."""
    stand_in(one="reference")
    if not finished.exists():
        run(finished, **ASKED)
    return shutil.copytree(finished, tmp_path / finished.name)


def cut_last_line(text: str) -> str:
    return text[:-9]


def cut_in_the_middle(text: str) -> str:
    return text[:len(text) // 2 - 20] + text[len(text) // 2 + 25:]


def cut_in_two(text: str) -> str:
    return text[:text.index("\n", len(text) // 2) + 1]


def keep_the_header(text: str) -> str:
    return text[:text.index("\n") + 1]


def spoil_a_number(text: str) -> str:
    lines = text.splitlines(keepends=True)
    lines[4] = re.sub(r",\d[^,]*", ",x", lines[4], count=1)
    return "".join(lines)


def lose_the_header(text: str) -> str:
    return text[text.index("\n") + 1:]


def mix_in_binary(text: str) -> str:
    return text[:300] + "\0\0\udcff" + text[303:]


DAMAGES = [cut_last_line, cut_in_the_middle, cut_in_two, keep_the_header, spoil_a_number, lose_the_header, mix_in_binary, None]


def resumed(folder: Path) -> Recorder:
    """Open the records as a driver does that goes on with them."""
    meta = json.loads((folder / "campaign.json").read_text())
    return Recorder.resume(folder, [trial["trial"] for trial in meta["trials"]], meta)


@pytest.mark.filterwarnings("ignore:.*the last line is unfinished")
@pytest.mark.parametrize("name", ["windows", "processes", "counters"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__ if damage else "gone")
def test_the_processes_that_a_damaged_file_lost_are_left_out(campaign_folder, name, damage: Callable[[str], str] | None):
    file = campaign_folder / f"{name}.csv"
    before = {(row["trial"], row["process"]): row for row in reader.read(campaign_folder).processes.to_dict("records")}
    if damage:
        file.write_text(damage(file.read_text()), errors="surrogateescape")
    else:
        file.unlink()
    recorder = resumed(campaign_folder)
    kept = recorder.finished()
    assert kept < set(before)
    if name != "processes":
        assert recorder.again == dict.fromkeys(set(before) - kept, f"its rows in {name}.csv were damaged")
    campaign = reader.read(campaign_folder)
    assert campaign.processes["order"].tolist() == list(range(len(kept)))
    assert set(zip(campaign.windows["trial"], campaign.windows["process"], strict=True)) == kept
    assert resumed(campaign_folder).finished() == kept


@pytest.mark.filterwarnings("ignore:.*the last line is unfinished")
@pytest.mark.parametrize(("name", "damage"), [("windows", cut_in_the_middle), ("counters", None), ("processes", cut_last_line)])
def test_what_was_lost_is_measured_again_and_the_row_says_so(campaign_folder, name, damage):
    file = campaign_folder / f"{name}.csv"
    file.write_text(damage(file.read_text())) if damage else file.unlink()
    done = run(campaign_folder, resume=True, **ASKED)
    assert audit.audit(campaign_folder) == []
    assert len(done.processes) == 4
    again = f"measured again: its rows in {name}.csv were damaged"
    said = [again in row["reason"] for row in table(campaign_folder).values()]
    assert any(said) is (name != "processes")


@pytest.mark.parametrize("name", ["windows", "processes"])
def test_a_table_in_another_encoding_is_kept_beside_what_is_measured_again(campaign_folder, name):
    file = campaign_folder / f"{name}.csv"
    file.write_bytes(file.read_text().encode("utf-16"))
    recorder = resumed(campaign_folder)
    copy = campaign_folder / "logs" / f"{name}.csv.damaged"
    assert copy.read_bytes().startswith(codecs.BOM_UTF16)
    assert recorder.repairs == [f"{file} was damaged: what it lost is measured again, and {copy} keeps what it was"]


@pytest.mark.parametrize("name", ["windows.csv", "processes.csv", "counters.csv", "campaign.json"])
def test_a_byte_order_mark_loses_nothing(campaign_folder, name):
    file = campaign_folder / name
    before = reader.read(campaign_folder)
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert reader.read(campaign_folder).processes.equals(before.processes)
    if file.suffix == ".csv":
        recorder = resumed(campaign_folder)
        assert (len(recorder.finished()), recorder.again, recorder.repairs) == (4, {}, [])
        assert not file.read_bytes().startswith(codecs.BOM_UTF8)


def test_a_whole_campaign_measures_nothing_again(campaign_folder):
    before = {name: (campaign_folder / f"{name}.csv").read_text() for name in ("processes", "windows")}
    run(campaign_folder, resume=True, **ASKED)
    assert {name: (campaign_folder / f"{name}.csv").read_text() for name in before} == before
    assert audit.audit(campaign_folder) == []


def test_a_release_that_could_not_be_built_is_tried_again(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference", two="reference")
    build = store.build
    fails = BuildFailed("`pip install` failed with exit code 1:\n  ERROR: No matching distribution")

    def refuse(framework, *rest):
        if framework == "two":
            raise fails
        return build(framework, *rest)

    monkeypatch.setattr(store, "build", refuse)
    run(tmp_path, frameworks=["one", "two"])
    assert "could not be built" in table(tmp_path)["two tiny_fcn"]["reason"]
    monkeypatch.setattr(store, "build", build)
    done = run(tmp_path, resume=True, frameworks=["one", "two"])
    assert set(done.processes["status"]) == {"ok"} and audit.audit(tmp_path) == []
    assert "measured again: crashed: its environment could not be built" in table(tmp_path)["two tiny_fcn"]["reason"]


def test_a_killed_worker_costs_its_process_until_the_campaign_goes_on(tmp_path, stand_in, monkeypatch):
    stand_in(one="reference")
    start = session.Session.start
    kills = iter([True, False, False, False])

    def killed(self, trial, log, *rest):
        worker = start(self, trial, log, *rest)
        if next(kills):
            os.kill(worker.process.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(session.Session, "start", killed)
    first = run(tmp_path, frameworks="one")
    assert first.processes["status"].tolist() == ["failed", "failed"]  # the second one is not started
    assert "signal SIGKILL" in first.processes["reason"].iloc[0]
    done = run(tmp_path, resume=True, frameworks="one")
    assert done.processes["status"].tolist() == ["ok", "ok"] and audit.audit(tmp_path) == []


def test_a_campaign_that_asks_for_a_narrow_interval_passes_its_audit(tmp_path, stand_in):
    stand_in(one="reference")
    done = run(tmp_path, frameworks="one", processes=3, interval=1e-9, processes_most=4)
    assert done.processes["process"].tolist() == [0, 1, 2, 3]
    assert audit.audit(tmp_path) == []


def test_a_second_driver_is_refused_with_the_first_ones_name(tmp_path, stand_in):
    built = stand_in(one="reference")
    with lock.held(tmp_path / "out"):
        for resume in (False, True):
            if resume:
                (tmp_path / "out" / "campaign.json").write_text("{}")
            with pytest.raises(WrongUse, match=f"out: process {os.getpid()} on .* measures into it: wait"):
                run(tmp_path / "out", resume=resume, frameworks="one")
    assert built == []


def test_the_lock_goes_with_its_holder_and_leaves_no_folder(tmp_path):
    with lock.held(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / ".lock").is_file()
    assert list(tmp_path.iterdir()) == []
    holder = subprocess.Popen([sys.executable, "-c", f"""
from pathlib import Path
from harness.records import lock
with lock.held(Path({str(tmp_path / "c")!r})):
    print("held", flush=True)
    input()"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(WrongUse, match=f"process {holder.pid} on "), lock.held(tmp_path / "c"):
        pass
    holder.kill()
    holder.communicate()
    with lock.held(tmp_path / "c"), (tmp_path / "c" / ".lock").open() as file:
        assert file.read().startswith(f"process {os.getpid()} on ")
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="no /proc on this system")
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_built(tmp_path, stand_in):
    built = stand_in(one="reference")
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file/under", Path("/proc/out"), Path("/dev/null"), tmp_path / ("x" * 300)):
        with pytest.raises(WrongUse, match="cannot be written"):
            run(place, frameworks="one")
    assert built == []


def test_a_folder_that_vanishes_in_mid_run_is_one_message(tmp_path, stand_in):
    stand_in(one="reference")

    def vanish(event):
        if event.phase == "timing":
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            time.sleep(0.05)
            (tmp_path / "out").write_text("not a folder any more") if not (tmp_path / "out").exists() else None

    # Whatever the driver does first: write a row, or read its first page.
    with pytest.raises((WrongUse, BadRecords), match=r"out.*( cannot be written \(Not a directory\)|: is a file)[:;] name"):
        run(tmp_path / "out", frameworks="one", watch=vanish)


def test_repairs_that_were_interrupted_are_still_told(campaign_folder, monkeypatch):
    (campaign_folder / "windows.csv").unlink()

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(campaign_folder, resume=True, watch=interrupt, **ASKED)
    assert len(json.loads((campaign_folder / "campaign.json").read_text())["repaired"]) == 4
    run(campaign_folder, resume=True, **ASKED)
    with (campaign_folder / "processes.csv").open() as file:
        assert {row["reason"] for row in csv.DictReader(file)} == {"measured again: its rows in windows.csv were damaged"}
    assert audit.audit(campaign_folder) == []
