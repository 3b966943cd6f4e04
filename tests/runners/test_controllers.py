"""One process for several devices: TensorFlow, JAX and MXNet against the reference, faults planted in each, parts of a step."""

from contextlib import contextmanager

import pytest

import networks
from harness.proof import copies
from harness.workers.worker import Failed, Unsupported, Worker
from tests.ready import to_train
from tests.slow import slow, slow_but

STALE = ("the devices' parameters have come apart: device 1 of 2 holds others than the rest; "
         "parameters that differ: 8, most of all dense4.bias, by 1 of what training changed (allowed 1e-05)")
DEFAULTS = {"jax": "all_reduce", "tensorflow": "one_device", "mxnet": "local"}


@pytest.fixture
def worker_of(worker_for, tmp_path):
    """Lend a worker that has built a network, with weights and batches: `with worker_of("jax", devices=2)`."""

    @contextmanager
    def lend(framework, devices, name="tiny_fcn", fault="", **task):
        task = {"devices": devices, "strategy": DEFAULTS[framework] if devices > 1 else "", **task}
        with worker_for(framework, fault, task) as worker:
            yield to_train(worker, tmp_path, 300, name, residence="device", **task)

    return lend


@pytest.mark.parametrize(("framework", "strategy", "network", "devices", "tuning"), [
    ("jax", "all_reduce", "tiny_resnet", 2, "stock"),
    pytest.param("jax", "all_reduce", "tiny_fcn", 4, "stock", marks=slow),
    ("jax", "all_reduce", "tiny_lstm", 2, "tuned"),
    ("tensorflow", "one_device", "tiny_resnet", 2, "stock"),
    pytest.param("tensorflow", "hierarchical_copy", "tiny_fcn", 4, "stock", marks=slow),
    ("tensorflow", "one_device", "tiny_lstm", 2, "tuned"),
    pytest.param("tensorflow", "multi_worker", "tiny_resnet", 2, "compiled", marks=slow),
    pytest.param("tensorflow", "multi_worker", "tiny_lstm", 2, "tuned", marks=slow),
    ("mxnet", "local", "tiny_resnet", 2, "stock"),
    ("mxnet", "device", "tiny_fcn", 4, "stock"),
    ("mxnet", "device", "tiny_lstm", 2, "tuned"),
])
def test_several_devices_are_the_same_as_the_reference_and_as_one_another(verdict, framework, strategy, network, devices, tuning):
    found = verdict(framework, network, devices=devices, strategy=strategy, tuning=tuning)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize(("fault", "reason"), [
    ("jax:Sum", "the sum over 2 devices instead of the mean"),
    ("tensorflow:Sum", "the sum over 2 devices instead of the mean"),
    ("mxnet:Sum", "the sum over 2 devices instead of the mean"),
    ("jax:OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
    ("tensorflow:OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
    ("mxnet:OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
    ("jax:Stale", STALE),
    ("tensorflow:Stale", STALE),
    ("mxnet:Stale", STALE),
])
def test_a_fault_of_several_devices_is_named(verdict, fault, reason):
    framework = fault.partition(":")[0]
    found = verdict(framework, "tiny_fcn", fault=fault, devices=2, strategy=DEFAULTS[framework])
    assert found.verdict == "different"
    assert reason in found.reason


@pytest.mark.parametrize(("fault", "reason"), [
    ("Sum", "the sum over 2 devices instead of the mean"),
    ("OtherRows", "8 of 8 gradients differ, from the loss backwards first dense4.bias"),
    ("Stale", "the devices' parameters have come apart: device 1 of 2 holds others than the rest"),
])
def test_a_fault_of_tensorflows_processes_is_named(verdict, fault, reason):
    found = verdict("tensorflow", "tiny_fcn", fault=fault, devices=2, strategy="multi_worker")
    assert found.verdict == "different"
    assert reason in found.reason


@pytest.mark.parametrize("tuning", ["stock", "compiled"])
def test_tensorflow_traces_its_step_once_however_many_follow(verdict, tuning):
    found = verdict("tensorflow", "tiny_fcn", fault="CountsTraces", devices=2, strategy="one_device",
                    tuning=tuning)
    assert found.reason == "different: 1 trace in 6 steps"


@pytest.mark.parametrize(("tuning", "left"), [("compiled", 32), ("tuned", 0)])  # 8 parameters and momenta on each
def test_xla_compiles_the_whole_update_of_tuned_tensorflow_on_several_devices(verdict, tuning, left):
    found = verdict("tensorflow", "tiny_fcn", fault="CountsAssignments", devices=2, strategy="one_device",
                    tuning=tuning)
    assert found.reason == f"different: {left} assignments of parameters or momenta outside XLA's programs"


@pytest.mark.parametrize(("network", "precision"), slow_but([("tiny_lstm", "fp32")], [("tiny_lstm", "fp32"), ("tiny_resnet", "bf16"), ("tiny_lstm", "fp16")]))
def test_gradients_in_one_vector_are_the_references(verdict, network, precision):
    found = verdict("tensorflow", network, fault="OneVector", devices=2, strategy="hierarchical_copy",
                    tuning="tuned", precision=precision)
    assert (found.verdict, found.reason) == ("same", "")


@pytest.mark.parametrize("tuning", ["stock", "tuned"])
def test_a_weight_decay_on_two_devices_is_that_of_one(worker_of, tuning):
    """Each device once added the whole decay, and the sum over devices held it twice."""
    with (worker_of("tensorflow", 2, fault="Decays", scheduled=True, tuning=tuning) as worker,
          pytest.raises(Failed, match=r"0\.50 of a decay of 0\.50")):
        worker.ask("copies", 120)


def test_a_step_of_jax_gives_its_whole_state_away(verdict):
    found = verdict("jax", "tiny_fcn", fault="CountsDonated", devices=2, strategy="all_reduce")
    assert found.reason == "different: 16 of 16 arrays donated"  # 8 parameters and their velocities


@pytest.mark.parametrize("framework", DEFAULTS)
def test_parts_of_a_step_leave_the_parameters_alone_and_the_whole_step_moves_all_copies_alike(worker_of, framework):
    with worker_of(framework, devices=2) as worker:
        before = worker.ask("copies", 60)["hashes"]
        times = [worker.ask("phase", 120, variant=part, steps=100) for part in ("F", "FB", "FBA", "A", "F")]
        assert all(time["steps"] == 100 and time["start"] < time["stop"] for time in times)
        assert worker.ask("copies", 60)["hashes"] == before
        worker.ask("phase", 120, variant="FBAU", steps=100)
        after = worker.ask("copies", 60)["hashes"]
        assert after[0] == after[1] != before[0]


@pytest.mark.parametrize(("part", "network", "devices", "tuning", "kept"), [
    ("FB", "tiny_lstm", 1, "stock", 10),  # an embedding's gradient is two arrays
    pytest.param("FB", "tiny_fcn", 1, "compiled", 8, marks=slow),
    ("FBA", "tiny_lstm", 2, "stock", 10),
    ("FBA", "tiny_lstm", 2, "tuned", 10),
    ("A", "tiny_fcn", 2, "stock", 8),
])
def test_tensorflow_computes_the_gradients_whose_time_it_tells(worker_of, part, network, devices, tuning, kept):
    """A graph drops what nobody takes, though its loss be bound to wait for it: backward passes took no time then."""
    with worker_of("tensorflow", devices, network, "Keeps", tuning=tuning) as worker:
        worker.ask("phase", 120, variant=part, steps=1)
        with pytest.raises(Failed, match=f"{kept} arrays kept, 0 wrong, after {part}"):
            worker.ask("copies", 120)


@pytest.mark.parametrize("network", ["tiny_fcn", "tiny_lstm"])  # an embedding's rows go another way
@pytest.mark.parametrize("part", slow_but(["FBAU"], ["A", "FBA", "FBAU"]))
def test_every_gradient_that_tensorflow_gives_to_nccl_has_a_device(worker_of, network, part):
    """NCCL's code refuses one without when it is traced."""
    with worker_of("tensorflow", 2, network, "Nccl", strategy="nccl_on_cpus") as worker:
        assert worker.ask("phase", 120, variant=part, steps=1)["steps"] == 1


def test_an_embedding_whose_rows_are_added_in_another_order_differs_by_rounding_and_nothing_else_does(worker_of):
    with worker_of("tensorflow", 2, "tiny_lstm", "OtherOrder") as worker:
        worker.ask("phase", 120, variant="FBAU", steps=100)
        (apart,) = worker.ask("copies", 60)["apart"].items()
        assert apart[0] == "embedding1.weight"
        assert 0 < apart[1]["share"] < 2e-6
        assert copies.compare(worker, networks.get("tiny_lstm"), "one_device", 2, 60) == copies.Comparison(error=apart[1]["share"])


@pytest.mark.parametrize("framework", DEFAULTS)
def test_one_device_has_nothing_to_aggregate(worker_of, framework):
    with worker_of(framework, devices=1) as worker:
        worker.ask("phase", 120, variant="FBA", steps=1)
        with pytest.raises(Unsupported, match="one device has no gradients to aggregate"):
            worker.ask("phase", 60, variant="A", steps=1)


@pytest.mark.parametrize(("framework", "strategy", "reason"), [
    ("jax", "ring", "strategy 'ring': this runner has all_reduce, tensor, fsdp"),
    ("tensorflow", "nccl", "strategy 'nccl': NCCL moves data between GPUs"),
    ("tensorflow", "ring", "strategy 'ring': this runner has nccl, hierarchical_copy, one_device"),
    ("mxnet", "nccl", "strategy 'nccl': NCCL moves data between GPUs"),
    ("mxnet", "ring", "strategy 'ring': this runner has local, device, nccl"),
])
def test_what_cannot_be_aggregated_is_unsupported_with_its_reason(worker_for, framework, strategy, reason):
    with worker_for(framework, "", {}) as worker, pytest.raises(Unsupported) as caught:
        build(worker, networks.get("tiny_fcn"), devices=2, strategy=strategy)
    assert str(caught.value) == reason


def test_more_devices_than_jax_was_started_with_are_unsupported(tmp_path, interpreter_of):
    """In a worker of its own: JAX keeps the threads of its first build."""
    variables = {"CUDA_VISIBLE_DEVICES": ""}
    with (Worker(interpreter_of("jax"), "runners.jax.runner", tmp_path / "log", variables) as worker,
          pytest.raises(Unsupported) as caught):
        build(worker, networks.get("tiny_fcn"), devices=2, strategy="all_reduce")
    assert str(caught.value) == "2 devices: jax.devices('cpu') has 1"


@pytest.mark.parametrize(("fault", "losses"), [("Losses", 2), ("SameUnits", 1)])
def test_each_device_of_tensorflow_drops_units_of_its_own(worker_of, fault, losses):
    with worker_of("tensorflow", 2, "tiny_dropout", fault, dropout=True) as worker:
        worker.ask("run", 120, steps=1)
        with pytest.raises(Failed, match=f"different: {losses} losses"):
            worker.ask("copies", 60)


def build(worker, network, **task):
    worker.ask("build", 300, **{"network": network.to_json(), "batch": 2, **task})
