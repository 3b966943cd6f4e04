"""Ranks of several nodes speak over TCP: a stranger is never read, and no clock but the driver's own counts."""

import socket
import sys
import time
from contextlib import suppress

import pytest

from harness.cluster import allocation
from harness.environments.recipes import Nodes
from harness.workers.ranks import Launch, Ranks
from harness.workers.reading import as_long_as_the_longest, in_our_clock
from harness.workers.worker import Failed, Timeouts, processes_with
from tests.parallel import PARALLEL
from tests.ready import to_train

NODES = Nodes(launch=["-m", "tests.faults.processes.launch", "{nodes}", "-m"], rank="RANK", strategies={"cpu": ["sums"]})
ON_NODES = PARALLEL.model_copy(update={"nodes": NODES})


@pytest.fixture
def ready(monkeypatch, tmp_path):
    """Start two ranks as if on two nodes, both of them here, that have built and fed tiny_fcn."""
    monkeypatch.setattr(allocation, "addresses", lambda count: ["127.0.0.1"] * count)
    monkeypatch.setattr(allocation, "step", lambda count: [])
    started = []

    def start(name="processes.ranks", before=lambda worker: None, **options):
        worker = Ranks(Launch(ON_NODES, 2, 2, 2), sys.executable, f"tests.faults.{name}", tmp_path / "ranks.log", **options)
        started.append(worker)
        before(worker)
        return to_train(worker, tmp_path, devices=2, ranks=2)

    yield start
    for each in started:
        each.end()
        assert processes_with(each.token) == []


def test_ranks_answer_as_one_and_say_what_their_networks_sent(ready):
    answer = ready().ask("run", limit=60, steps=3)
    assert sorted(answer) == ["loss", "network_tx_bytes", "peak_memory_bytes", "start", "steps", "stop"]
    assert 0 < answer["stop"] - answer["start"] < 60
    assert answer["network_tx_bytes"] >= 0


@pytest.mark.parametrize("said", [b"", b'{"rank": 1, "pid": 1}\n', b"0" * 64 + b'{"rank": 0, "pid": 1}\n'], ids=["nothing", "no secret", "a wrong secret"])
def test_a_stranger_on_the_port_is_never_read(ready, said):
    with socket.socket() as stranger:
        def intrude(worker):
            stranger.connect(worker.listener.getsockname())
            stranger.sendall(said)

        worker = ready(before=intrude)
        assert worker.ask("run", limit=60, steps=1)["steps"] == 1
        assert len(worker.links) == 2
        assert stranger.getsockname() not in [link.getpeername() for link in worker.links.values()]
        if len(said) >= 64:
            stranger.settimeout(5)
            # Closed, with what it sent unread or read.
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""


def test_nothing_listens_on_other_interfaces(ready):
    assert ready().listener.getsockname()[0] == "127.0.0.1"


def test_a_rank_of_another_node_is_judged_by_its_heartbeats(ready):
    worker = ready()
    worker.timeouts = Timeouts(silence=3.0)
    [stopped] = [each for each in processes_with(worker.token) if each.environ().get("RANK") == "1"]
    stopped.suspend()
    with pytest.raises(Failed, match=r"rank [01]: 'run': no heartbeat"):
        worker.ask("run", limit=600, steps=1)


def test_a_window_of_another_clock_keeps_its_length_and_ends_now():
    moved = in_our_clock({"start": 5000.0, "stop": 5000.25, "steps": 1})
    assert moved["stop"] - moved["start"] == pytest.approx(0.25)
    assert moved["stop"] <= time.monotonic()
    assert in_our_clock({"losses": []}) == {"losses": []}


def test_a_window_lasts_as_long_as_that_of_the_slowest_rank():
    answers = [{"start": 1.0, "stop": 2.0}, {"start": 7.0, "stop": 7.5}]
    assert as_long_as_the_longest(answers) == [{"start": 6.5, "stop": 7.5}] * 2
    assert as_long_as_the_longest([{"loss": 1.0}]) == [{"loss": 1.0}]
