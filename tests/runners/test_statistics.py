"""Batch norm's running statistics follow one rule in every runner, and `load` forgets them."""

import numpy as np
import pytest

from harness.data import arrays
from networks.builder import Builder
from networks.description import Network
from runners.protocol import Task
from runners.reference.runner import Runner
from tests.conftest import TASK, needs_compiler
from tests.slow import slow

BATCH, STEPS = 4, 2


def make_network():
    net = Builder((3, 8, 8))
    net.batch_norm()
    net.conv(4, kernel=3, stride=2, padding=1, bias=False)
    net.batch_norm()
    net.relu()
    net.global_avg_pool()
    net.dense(5)
    return Network("norms", "Norms", "synthetic", (BATCH,), learning_rate=0.1, momentum=0.9, input_shape=(3, 8, 8),
                   vocabulary=0, classes=5, layers=tuple(net.layers))


NETWORK = make_network()
# Of each batch norm, how many values of one device one channel has.
COUNTS = {layer.name: BATCH * np.prod(layer.output_shape[1:])
          for layer in NETWORK.layers if layer.op == "batch_norm"}


@pytest.mark.parametrize("devices", [1, 2])
def test_the_reference_keeps_nine_tenths_of_the_first_devices_statistics(devices):
    inputs, targets = arrays.synthetic_batches(NETWORK, BATCH * devices, STEPS, seed=1)
    runner = Runner(Task(NETWORK.to_json(), BATCH, devices=devices))
    first, second = inputs[:, :BATCH].astype(np.float64).swapaxes(1, 2).reshape(2, 3, -1)
    for _ in range(2):
        runner.load(runner.parameters())
        runner.feed(inputs, targets, "host")
        assert {name: set(array) for name, array in runner.statistics().items()} == {
            f"batch_norm{number}.{kind}": {start}
            for number in (1, 2) for kind, start in (("mean", 0.0), ("variance", 1.0))}
        dict(runner.differentiate(*runner.ring[0])[1])  # no step
        runner.step()
        runner.step()
        found = runner.statistics()
        np.testing.assert_allclose(found["batch_norm1.mean"], 0.09 * first.mean(1) + 0.1 * second.mean(1), rtol=1e-12)
        np.testing.assert_allclose(found["batch_norm1.variance"],
                                   0.81 + 0.09 * first.var(1) + 0.1 * second.var(1), rtol=1e-12)


@pytest.mark.parametrize(("framework", "task"), [
    ("pytorch", {}),
    pytest.param("pytorch", {"tuning": "compiled"}, marks=slow),
    pytest.param("pytorch", {"tuning": "tuned", "precision": "bf16"}, marks=needs_compiler),
    ("pytorch", {"devices": 2, "strategy": "ddp"}),
    ("tensorflow", {}),
    ("tensorflow", {"tuning": "compiled", "precision": "bf16"}),
    ("tensorflow", {"devices": 2, "strategy": "hierarchical_copy"}),
    ("jax", {}),
    ("jax", {"precision": "bf16"}),
    ("jax", {"devices": 2, "strategy": "all_reduce"}),
    ("paddle", {}),
    ("paddle", {"tuning": "tuned"}),
    ("paddle", {"devices": 2, "strategy": "all_reduce"}),
    ("mxnet", {}),
    ("mxnet", {"tuning": "tuned"}),
    ("mxnet", {"devices": 2, "strategy": "local"}),
    ("cntk", {}),
    ("cntk", {"devices": 2, "strategy": "data_parallel"}),
    ("caffe", {}),
])
def test_running_statistics_follow_the_batches_and_are_forgotten(worker_for, tmp_path, monkeypatch, framework, task):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    devices = task.get("devices", 1)
    weights = arrays.draw_weights(NETWORK, seed=1)
    batches = arrays.synthetic_batches(NETWORK, BATCH * devices, STEPS, seed=1)
    arrays.save_weights(tmp_path / "weights.npz", weights)
    arrays.save_batches(tmp_path / "batches.npz", *batches)
    loose = task.get("precision", "fp32") != "fp32"
    with worker_for(framework, "", task := {**TASK, **task}) as worker:
        worker.ask("hello", 300)
        worker.ask("build", 300, network=NETWORK.to_json(), batch=BATCH, **task)
        for _ in range(2):
            worker.ask("load", 60, weights=str(tmp_path / "weights.npz"))
            assert_close(statistics(worker, tmp_path), of_reference(weights, batches, devices, 0), 0, 0)
            worker.ask("feed", 60, batches=str(tmp_path / "batches.npz"), residence="host")
            for steps in (1, 2):
                worker.ask("run", 120, steps=1)
                assert_close(statistics(worker, tmp_path), of_reference(weights, batches, devices, steps), steps,
                             0.03 if loose else 1e-4)


def statistics(worker, folder):
    worker.ask("statistics", 60, out=str(folder / "statistics.npz"))
    with np.load(folder / "statistics.npz") as saved:
        return {name: saved[name] for name in saved.files}


def of_reference(weights, batches, devices, steps):
    runner = Runner(Task(NETWORK.to_json(), BATCH, devices=devices))
    runner.load(weights)
    runner.feed(*batches, "host")
    for _ in range(steps):
        runner.step()
    return runner.statistics()


def assert_close(found, wanted, steps, share):
    """Compare within a share of the largest; a variance may be the unbiased one."""
    assert sorted(found) == sorted(wanted)
    for name, right in wanted.items():
        assert (found[name].dtype, found[name].shape) == (np.float32, right.shape)
        layer, kind = name.split(".")
        start = 0.9**steps if kind == "variance" else right
        unbiased = start + (right - start) * COUNTS[layer] / (COUNTS[layer] - 1)
        error = min(np.abs(found[name] - allowed).max() for allowed in (right, unbiased))
        assert error <= share * np.abs(right).max(), name
