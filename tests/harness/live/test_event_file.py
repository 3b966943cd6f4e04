"""A campaign's events as a file: what runs, what the records hold, and a loss that leaves its peers."""

import json
import math
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.records import reader
from harness.campaign.events import Event, Listener, Outcome
from harness.live import event_file
from harness.live.event_file import EventFile, past, readings
from harness.proof.losses import Peers

PUBLISHED = Path(__file__).parents[3] / "results/cpu-strategies-2026-11-21"
TRIAL = SimpleNamespace(trial="a-tiny", framework="a", release="1", network="tiny", batch=4, devices=1,
                        precision="fp32", tuning="stock", global_batch=4, data="device")


class Heard(Listener):
    def __init__(self):
        self.events = []

    def watch(self, event):
        self.events.append(event.phase)

    def note(self, text):
        self.events.append(text)

    def done(self, outcome, number, total):
        self.events.append((number, total))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path


def lines_of(folder):
    return [json.loads(line) for line in (folder / event_file.NAME).read_text().splitlines()]


def test_events_are_written_passed_on_and_gone_at_the_end(folder):
    heard = Heard()
    samples = [{"device": "gpu0", "seconds": second, "pcie_rx_bytes": 10.0 * second, "power_watts": 90.0}
               for second in (1.0, 3.0)]
    with EventFile(folder, "A title", heard) as events:
        events.note("before the folder's first page")
        (folder / "campaign.json").write_text("{}")
        events.watch(Event(TRIAL, 0, "building"))
        events.watch(Event(TRIAL, 0, "timing", 1, 0.5, math.nan, 9, samples))
        events.done(Outcome({"trial": "a-tiny", "process": 0, "status": "failed", "reason": "diverged"}), 1, 2)
        begin, building, window, done = lines_of(folder)
    assert heard.events == ["before the folder's first page", "building", "timing", (1, 2)]
    assert (begin["event"], begin["title"], building["phase"]) == ("begin", "A title", "building")
    # Strict JSON has no NaN.
    assert (window["step"], window["loss"], window["framework"]) == (9, "nan", "a")
    assert window["devices_now"] == {"gpu0": {"power_watts": 90.0, "pcie_rx_bytes_per_second": 10.0}}
    assert (done["status"], done["reason"], done["total"]) == ("failed", "diverged", 2)
    assert not (folder / event_file.NAME).exists()


def test_two_threads_that_write_first_begin_one_file(folder, monkeypatch):
    (folder / "campaign.json").write_text("{}")
    with EventFile(folder, "A title", Heard()) as events:
        others = []

        def interrupted(_):
            """Let another thread write in the middle of the first line; it has to wait."""
            if not others:
                others.append(threading.Thread(target=events.note, args=("second",)))
                others[0].start()
                others[0].join(timeout=0.2)
            return iter(())

        monkeypatch.setattr(event_file, "past", interrupted)
        events.note("first")
        [other] = others
        other.join()
        assert [line.get("text") for line in lines_of(folder)] == [None, "first", "second"]


def test_no_events_are_left_to_be_hashed_when_the_campaign_ends(folder):
    (folder / "campaign.json").write_text("{}")
    with EventFile(folder, "A title", Listener()) as events:
        events.note("running")
        assert lines_of(folder)
        events.end()
        assert not (folder / event_file.NAME).exists()


def test_the_host_and_what_is_not_measured_are_left_out():
    rows = [{"device": "host", "seconds": 1.0, "power_watts": 5.0},
            {"device": "gpu1", "seconds": 1.0, "power_watts": math.nan, "sm_mhz": None}]
    assert readings(rows) == {"gpu1": {}}


def test_records_tell_the_same_events_again():
    campaign = reader.read(PUBLISHED)
    begin, *lines = past(PUBLISHED)
    assert (begin["event"], begin["title"]) == ("begin", campaign.meta["suite"]["title"])
    ended = [line for line in lines if line["event"] == "done"]
    windows = [line for line in lines if line["event"] == "window"]
    assert [line["number"] for line in ended] == list(range(1, len(campaign.processes) + 1))
    assert len(windows) == len(campaign.windows)
    assert {line["phase"] for line in windows} == {"warm-up", "timing"}


def test_a_folder_without_records_has_no_past(tmp_path):
    assert list(past(tmp_path)) == []


def peers(*losses, framework="b"):
    found = Peers()
    for number, own in enumerate(losses):
        other = SimpleNamespace(**{**vars(TRIAL), "framework": f"{framework}{number}"})
        found.add(other, list(range(1, len(own) + 1)), list(own))
    return found


FALLING = [2.0 / step for step in range(1, 9)]


@pytest.mark.parametrize(("own", "strays"), [
    (FALLING, False),
    ([2.0] * 8, True),  # never trains
    ([2.0 / step for step in range(1, 8)] + [9.0], False),  # one window may jump
    ([2.0 / step for step in range(1, 7)] + [9.0, 9.0], True),
])
def test_a_loss_away_from_two_other_frameworks_in_two_windows_is_told(own, strays):
    said = peers(FALLING, [1.02 * loss for loss in FALLING]).stray(TRIAL, list(range(1, 9)), own)
    assert bool(said) == strays
    if strays:
        assert f"the loss is {own[-1]:.4g} after step 8, that of 2 other frameworks 0.25 to 0.255" == said


def test_one_peer_is_no_majority_and_peers_apart_say_nothing():
    steps, own = list(range(1, 9)), [2.0] * 8
    assert not peers(FALLING).stray(TRIAL, steps, own)
    assert not peers(FALLING, [1.0] * 8).stray(TRIAL, steps, own)
    same = peers(FALLING, FALLING)
    same.curves = {group: {"b": curves["b0"] + curves["b1"]} for group, curves in same.curves.items()}
    assert not same.stray(TRIAL, steps, own)


def test_a_step_that_no_peer_has_reached_says_nothing():
    assert not peers(FALLING, FALLING).stray(TRIAL, list(range(1, 20)), [2.0] * 19)
