"""XLA moves between devices what the model of each sharding says, and no more."""

import pytest

import networks
from analysis.strategies import table
from tests.conftest import TASK

DEVICES, BATCH = 3, 4
TRIAL = {"network": "tiny_gpt", "framework": "jax", "precision": "fp32", "devices": DEVICES,
         "global_batch": BATCH * DEVICES}


@pytest.fixture
def moved(worker_for):
    """Return the numbers in each kind of collective, and the runner's settings."""

    def ask(strategy):
        task = {**TASK, "devices": DEVICES, "strategy": strategy}
        with worker_for("jax", "Collectives", task) as worker:
            worker.ask("hello", 300)
            built = worker.ask("build", 300, network=networks.get("tiny_gpt").to_json(),
                               batch=BATCH, **task)
        words = [setting.rpartition(" ") for setting in built["settings"]]
        sizes = {name: int(size) for name, _, size in words if size.isdigit()}
        return sizes, "; ".join(built["settings"])

    return ask


def test_tensor_parallelism_adds_up_what_the_model_says(moved):
    sizes, settings = moved("tensor")
    assert list(sizes) == ["all-reduce"]
    predicted = table.step_bytes({**TRIAL, "strategy": "tensor"}, settings)
    assert 2 * (DEVICES - 1) * 4 * sizes["all-reduce"] == predicted


def test_sharded_parameters_are_gathered_in_both_passes(moved):
    """XLA's CPU client adds gradients up whole, a tied table's once for each use, and the loss."""
    sizes, settings = moved("fsdp")
    assert set(sizes) == {"all-gather", "all-reduce"}
    count = networks.get("tiny_gpt").parameter_count
    assert sizes["all-gather"] == 2 * count
    assert sizes["all-reduce"] == count + 211 * 48 + 1
    predicted = table.step_bytes({**TRIAL, "strategy": "fsdp"}, settings)
    assert predicted == 3 * (DEVICES - 1) * 4 * count


def test_a_network_that_is_whole_on_each_device_is_refused(verdict):
    found = verdict("jax", "tiny_fcn", fault="Undivided", devices=2, strategy="tensor")
    assert found.verdict == "different"
    assert found.reason.startswith("strategy tensor: the devices divide 0 of 861 parameters")
