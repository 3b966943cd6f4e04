"""What the driver makes of the lines of other nodes' agents, and that an agent ends with its input."""

import json
import subprocess
import sys

import pytest

from harness.telemetry import agent
from harness.telemetry.sampler import Sampler
from tests.harness.telemetry.test_sampler import Scripted


def test_the_newest_line_of_each_node_counts_and_other_words_do_not():
    lines, times = {}, iter([1.0, 2.0, 3.0])
    said = [{"node": "n2", "devices": {"host": {"memory_used_bytes": 1}}}, {"node": "n3", "devices": {"host": {"memory_used_bytes": 5}}},
            {"node": "n2", "devices": {"host": {"memory_used_bytes": 2}, "gpu0": {"busy_percent": 90}}}]
    agent.keep_newest(["srun: warning\n", "[1]\n", "{}\n", *map(json.dumps, said)], lines, lambda: next(times))
    host, gpu, silent = (agent.OfNode(node, device, lines) for node, device in (("n2", "host"), ("n2", "gpu0"), ("n3", "gpu0")))
    assert (host.name, host.read(4.0)) == ("n2/host", {"memory_used_bytes": 2})
    assert gpu.read(4.0) == {"busy_percent": 90}
    assert silent.read(4.0) == {}


@pytest.mark.parametrize("lines", [{}, {"n2": (1.0, {"host": {"memory_used_bytes": 1}})}])
def test_an_agent_that_says_nothing_is_a_reason_and_no_old_number(lines):
    assert agent.OfNode("n2", "host", lines).read(60.0) == {"broken": "agent: no word from n2"}


def test_other_nodes_are_sampled_for_trials_on_several_nodes_only():
    sampler = Sampler([Scripted(name, "slow") for name in ("host", "gpu0", "n2/host", "n2/gpu0", "n2/gpu1")])
    for nodes, expected in ((1, {"host", "gpu0"}), (2, {"host", "gpu0", "n2/host", "n2/gpu0"})):
        with sampler.recording(1, nodes), sampler.around_window():
            pass
        assert {sample["device"] for sample in sampler.samples} == expected


def test_an_agent_tells_of_its_host_and_ends_with_its_input():
    with subprocess.Popen([sys.executable, *agent.MODULE, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={"SLURMD_NODENAME": "n2", "PYTHONPATH": ":".join(sys.path)}) as started:
        line = json.loads(started.stdout.readline())
        started.stdin.close()
        assert started.wait(300) == 0
    assert line["node"] == "n2" and line["devices"]["host"]["memory_used_bytes"] > 0
