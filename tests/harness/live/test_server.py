"""The live page's server: its token, what it sends, and the page itself in a browser."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from analysis.records.manifest import LOCK
from harness.cli import progress
from harness.errors import WrongUse
from harness.live import server
from harness.live.event_file import NAME
from harness.records import lock

PUBLISHED = Path(__file__).parents[3] / "results/cpu-strategies-2026-11-21"


@pytest.fixture
def served():
    command = [sys.executable, "-c", "from harness.start import main; main()", "live", str(PUBLISHED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.terminate()


def fetch(address, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_only_who_knows_the_token_on_this_host_gets_the_page(served):
    host = re.match(r"http://127\.0\.0\.1:\d+/", served)[0]
    assert [fetch(host + path)[0] for path in ("", "events", "wrong/", "wrong/events", "%00/")] == [404] * 5
    assert fetch(served, Host="elsewhere.example")[0] == 400
    code, headers, page = fetch(served)
    assert code == 200 and "<title>dlbench live</title>" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert json.loads(fetch(served + "settings.json")[2])["colours"]["pytorch"] == "#d55e00"
    # A finished campaign: everything at once, and the end.
    events = [json.loads(line[6:]) for line in fetch(served + "events")[2].splitlines() if line.startswith("data: ")]
    assert [events[0]["event"], events[1]["event"], events[-1]["event"]] == ["reset", "begin", "end"]
    assert sum(event["event"] == "done" for event in events) == events[-2]["total"]


def heard(folder, offset=0, most=20):
    """What a page hears of a folder, until the server says that nothing new comes, or the end."""
    async def listen():
        found = []
        async for event in server.follow(folder, offset):
            if event == ": nothing new\n\n":
                break
            found.append(event)
            if len(found) == most:
                break
        return found

    return asyncio.run(listen())


def data(events):
    return [json.loads(line[6:])["event"] for event in events for line in event.splitlines() if line.startswith("data: ")]


def test_half_a_line_waits_and_a_page_that_returns_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.001)
    file = tmp_path / NAME
    file.parent.mkdir()
    file.write_text('{"event": "begin"}\n{"event": "note"}\n{"event": "no')
    first = heard(tmp_path)
    assert data(first) == ["reset", "begin", "note"]
    place = int(re.findall(r"id: (\d+)", first[-1])[0])
    with file.open("a") as more:
        more.write('te"}\n{"event": "end"}\n')
    assert data(heard(tmp_path, place)) == ["note", "end"]
    # Begun again: the file is shorter than the place.
    file.write_text('{"event": "begin"}\n')
    assert data(heard(tmp_path, place)) == ["reset", "begin"]


def test_a_page_that_is_early_waits_for_its_campaign(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.001)
    assert set(heard(tmp_path, most=3)) == {": waiting\n\n"}


@pytest.mark.parametrize(("words", "said"), [
    (["nowhere"], "nowhere: no such campaign"), ([str(PUBLISHED), "--port", "70000"], "65535"),
    ([str(PUBLISHED), "--port", "1"], None)])
def test_wrong_use_is_told_in_a_message(words, said, monkeypatch, capsys):
    if said is None:
        def refuse(*asked):
            raise OSError(98, "Address already in use")

        monkeypatch.setattr(server, "serve", refuse)
        with pytest.raises(WrongUse, match="--port 1: Address already in use; name another one"):
            progress.live(PUBLISHED, 1)
        return
    process = subprocess.run([sys.executable, "-c", "from harness.start import main; main()", "live", *words],
                             capture_output=True, text=True, timeout=120)
    assert process.returncode == 2 and said in process.stdout + process.stderr
    assert "Traceback" not in process.stderr


def test_a_folder_without_a_campaign_is_said_to_hold_none_yet(tmp_path, monkeypatch, capsys):
    served = []
    monkeypatch.setattr(server, "serve", lambda folder, *rest: served.append(folder))
    progress.live(PUBLISHED)
    assert capsys.readouterr().err == ""
    progress.live(tmp_path)
    assert served == [PUBLISHED, tmp_path] and "holds no campaign yet; the page waits for one" in capsys.readouterr().err


def test_a_missing_library_and_a_server_that_does_not_start_are_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "harness.live.server", None)
    monkeypatch.delattr("harness.live.server", raising=False)
    with pytest.raises(WrongUse, match=r"pip install -e '\.\[live\]'"):
        progress.live(PUBLISHED)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    folder = tmp_path / "new"
    with pytest.raises(WrongUse, match="--live: the page's server did not start"), \
            progress.page_beside(folder, True):
        pytest.fail("a campaign began without its page")
    assert not folder.exists()


@pytest.mark.parametrize(("holder", "held"), [
    (None, False), (f"process {os.getpid()} on {socket.gethostname()}", True),
    (f"process 4194305 on {socket.gethostname()}", False), ("process 1 on elsewhere", True),
    ("", True)],
    # Named, because both test processes must collect the same names.
    ids=["nobody", "this process", "a dead process", "another machine", "unreadable"])
def test_a_folder_is_held_as_long_as_its_driver_lives(tmp_path, holder, held):
    if holder is not None:
        (tmp_path / LOCK).write_text(holder + "\n")
    assert lock.is_held(tmp_path) == held


def test_a_campaign_with_its_page_hears_every_process(tmp_path):
    """`run --live`: the page follows the campaign from a process of its own."""
    suite = tmp_path / "suite.yaml"
    suite.write_text("frameworks: [reference]\nnetworks: {tiny_fcn: {batch: 2}}\nprocesses: 2\nwindows: 2\n"
                     "window_seconds: 0.01\npeaks: false\ntelemetry: false\n")
    out = tmp_path / "deep/er/run"
    command = [sys.executable, "-c", "from harness.start import main; main()", "run", str(suite), "--live", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said, address = [], ""
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"Live page: (\S+)", line):
                address = found[1]
                break
        assert address, "".join(said)
        events, until = [], time.monotonic() + 240
        with urllib.request.urlopen(address + "events", timeout=240) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    events.append(json.loads(line[6:]))
                    if events[-1]["event"] == "end" or time.monotonic() > until:
                        break
        rest = process.stdout.read()
    assert [event["event"] for event in events].count("done") >= 2, "".join(said) + rest
    assert events[-1]["event"] == "end" and not (out / NAME).exists()
