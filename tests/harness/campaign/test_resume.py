"""What survives an interrupt or a kill, and what may go on with a campaign."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

from analysis.records import reader
from analysis.trials import summary as trials
from harness.campaign import campaign
from harness.campaign.events import Event
from harness.errors import WrongUse
from tests.harness.campaigns import SMALL, run, table
from tests.slow import slow_but

ROOT = Path(__file__).parents[3]
NETWORKS = ["tiny_fcn", "tiny_lstm"]
# Waits for a signal where a process is timed after `finished` others, however late that comes.
DRIVER = """
import signal, sys
from harness.cli.main import main
from harness.cli.progress import Display
watch, done, finished, left = Display.watch, Display.done, int(sys.argv.pop(1)), []

def waits(self, event):
    watch(self, event)
    if event.phase == "timing" and len(left) >= finished:
        print("waits for a signal", flush=True)
        signal.pause()

Display.watch, Display.done = waits, lambda *row: left.append(1) or done(*row)
main()"""


def test_an_interrupt_leaves_readable_records_and_no_worker(tmp_path, stand_in, workers_in):
    stand_in(one="reference")
    seen = Counter()

    def interrupt(event: Event) -> None:
        seen[event.phase] += 1
        if event.phase == "timing" and seen["starting"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", networks=NETWORKS, watch=interrupt)
    assert workers_in(tmp_path) == []
    stopped = reader.read(tmp_path)
    assert (len(stopped.processes), stopped.meta["finished"]) == (1, None)
    assert sorted(row["status"] for row in table(tmp_path).values()) == ["failed", "ok"]

    finished = run(tmp_path, resume=True, frameworks="one", networks=NETWORKS)
    assert len(finished.processes) == 4
    pd.testing.assert_frame_equal(finished.processes.iloc[:1], stopped.processes, check_exact=True)


def test_an_interrupt_in_the_first_process_leaves_a_table_of_what_was_not_run(tmp_path, stand_in):
    stand_in(one="reference")

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, frameworks="one", watch=interrupt)
    assert table(tmp_path)["one tiny_fcn"]["reason"] == trials.NOT_RUN


def drive(folder: Path, finished: int, temporary: Path | None = None) -> subprocess.Popen[str]:
    """Start `dlbench run` of the reference, with its lines on a pipe and a TMPDIR of its own."""
    suite = folder.parent / "suite.yaml"
    suite.write_text(yaml.safe_dump({**SMALL, "frameworks": "reference", "networks": NETWORKS}))
    command = [sys.executable, "-c", DRIVER, str(finished), "run", str(suite), "--out", str(folder),
               "--interpreter", f"reference={sys.executable}"]
    # A shell's background ignores SIGINT.
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200", "TMPDIR": str(temporary or "/tmp")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def workers_end(workers, seconds=300.0) -> bool:
    """Wait until no worker is left. One that started as its driver died shows up late."""
    deadline = time.monotonic() + seconds
    while (left := workers()) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=1)
    return not left


def test_a_killed_campaign_resumes_and_loses_nothing_that_was_finished(tmp_path, workers_in):
    folder = tmp_path / "campaign"
    with drive(folder, 2) as driver:
        assert "waits for a signal\n" in driver.stdout
        driver.send_signal(signal.SIGKILL)
    assert workers_end(lambda: workers_in(folder))
    killed = reader.read(folder)
    assert len(killed.processes) == 2
    left, process = next((trial["trial"], process) for process in (1, 0) for trial in killed.trials
                         if not ((killed.processes["trial"] == trial["trial"])
                                 & (killed.processes["process"] == process)).any())
    # As if the kill had come between a process's windows and its row.
    with (folder / "windows.csv").open("a") as file:
        file.write(f"{left},{process},-1,1,1,1.0,2.0,1.0,1.0,777.0\n{left},{process},0,1,")

    with pytest.warns(UserWarning, match=r"windows\.csv: the last line is unfinished"):
        done = run(folder, resume=True, frameworks="reference", networks=NETWORKS,
                   interpreters={"reference": sys.executable})
    pd.testing.assert_frame_equal(done.processes.iloc[:len(killed.processes)], killed.processes,
                                  check_exact=True)
    pd.testing.assert_frame_equal(done.windows.iloc[:len(killed.windows)], killed.windows,
                                  check_exact=True)
    assert Counter(zip(done.processes["trial"], done.processes["process"], strict=True)) == Counter(
        (trial["trial"], process) for trial in done.trials for process in range(2))
    assert 777.0 not in done.windows["loss"].tolist()
    assert ",777.0\n" not in (folder / "windows.csv").read_text()
    assert {row["status"] for row in table(folder).values()} == {"ok"}
    assert done.meta["finished"] and done.meta["started"] == killed.meta["started"]


@pytest.mark.parametrize("number", slow_but([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_a_campaign_that_is_told_to_end_leaves_no_process_and_no_temporary_file(
        tmp_path, workers_in, number):
    folder, temporary = tmp_path / "campaign", tmp_path / "t"
    temporary.mkdir()
    with drive(folder, 1, temporary) as driver:
        lines = iter(driver.stdout)
        assert "waits for a signal\n" in lines
        assert [path.name.startswith("dlbench-") for path in temporary.iterdir()] != []
        driver.send_signal(number)
        assert "Stopped; every finished process is kept. Go on with: dlbench run " in "".join(lines)
    assert driver.returncode == 1
    assert workers_in(folder) == []
    assert list(temporary.iterdir()) == []
    assert len(reader.read(folder).processes) == 1


@pytest.fixture
def begun(tmp_path, stand_in) -> Path:
    """A campaign of one process."""
    stand_in(one="reference")
    run(tmp_path / "begun", frameworks="one", processes=1)
    return tmp_path / "begun"


@pytest.mark.parametrize(("change", "reason"), [
    ({"networks": "tiny_lstm"},
     "the suite plans other trials now (one-{np}-tiny_fcn-b4-cpux1-t1-fp32-stock-host, one-{np}-"),
    ({"batch": 8}, "the suite plans other trials now (one-{np}-tiny_fcn-b4-"),
    ({"processes": 3}, "processes is 3 now and was 1: "),
    ({"windows": 3}, "windows is 3 now and was 2: "),
    ({"window_seconds": 0.02}, "window_seconds is 0.02 now and was 0.01: "),
    ({"seed": 2}, "seed is 2 now and was 1: "),
    ({"check": {"steps": 3}},
     "check is {{'batch': 2, 'steps': 3}} now and was {{'batch': 2, 'steps': 2}}: "),
])
def test_another_suite_cannot_resume_a_campaign(begun, stand_in, change: dict[str, Any],
                                                reason: str):
    built = stand_in(one="reference")
    files = {path: path.read_bytes() for path in begun.glob("*.*")}
    with pytest.raises(WrongUse) as caught:
        run(begun, resume=True, **{"frameworks": "one", "processes": 1, **change})
    assert str(caught.value).startswith(f"{begun}: {reason.format(np=np.__version__)}")
    assert str(caught.value).endswith(
        "resume with the suite and overrides that began this campaign, or begin another with --out")
    assert built == []
    assert {path: path.read_bytes() for path in begun.glob("*.*")} == files


def test_another_wire_cannot_resume_a_campaign_and_other_sources_are_noted(
        begun, stand_in, monkeypatch):
    built = stand_in(one="reference")
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    said = r"campaign\.json: variables\.NCCL_P2P_DISABLE was not set, and is 1 now: put back"
    with pytest.raises(WrongUse, match=said):
        run(begun, resume=True, frameworks="one", processes=1)
    assert built == []
    monkeypatch.delenv("NCCL_P2P_DISABLE")
    header = (begun / "processes.csv").read_text().splitlines()[0]
    # As if it had been killed in its first process.
    (begun / "processes.csv").write_text(f"{header}\n")
    monkeypatch.setattr(campaign.manifest, "source_hash", lambda: "b" * 64)
    done = run(begun, resume=True, frameworks="one", processes=1)
    assert done.meta["resumed"] == ["with other sources of dlbench (SHA-256 bbbbbbbbbbbb)"]
    assert table(begun)["one tiny_fcn"]["reason"].endswith(
        "; resumed with other sources of dlbench (SHA-256 bbbbbbbbbbbb)")


def test_records_that_do_not_say_their_variables_cannot_be_resumed(begun, stand_in):
    stand_in(one="reference")
    page = json.loads((begun / "campaign.json").read_text())
    del page["variables"]
    (begun / "campaign.json").write_text(json.dumps(page))
    with pytest.raises(WrongUse,
                       match=r"campaign\.json: no key variables: .* begin another with --out"):
        run(begun, resume=True, frameworks="one", processes=1)


def test_a_finished_campaign_resumes_to_the_same_records_with_more_patience(begun, stand_in):
    stand_in(one="processes.wire:Raises")  # nothing is left to run, so nobody sees it
    files = {
        name: (begun / name).read_bytes() for name in ("processes.csv", "windows.csv", "trials.csv")
    }
    run(begun, resume=True, frameworks="one", processes=1, limits={"window": 1000})
    assert {name: (begun / name).read_bytes() for name in files} == files


def test_an_empty_folder_cannot_be_resumed(tmp_path, stand_in):
    built = stand_in(one="reference")
    with pytest.raises(
            WrongUse,
            match=r"campaign\.json: no such file; name a folder that `dlbench run` wrote"):
        run(tmp_path, resume=True, frameworks="one")
    assert built == []
