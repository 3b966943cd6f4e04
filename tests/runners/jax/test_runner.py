"""JAX's runner trains the reference's networks, and faults planted in its real code are caught and named."""

import pytest

import networks
from tests.conftest import TASK
from tests.slow import slow


@pytest.mark.parametrize(("network", "tuning"), [
    ("tiny_cnn", "stock"), pytest.param("tiny_resnet", "stock", marks=slow), ("tiny_lstm", "tuned"),
])
def test_channels_last_and_unrolled_scans_are_the_same(verdict, network, tuning):
    found = verdict("jax", network, tuning=tuning)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize("network", ["tiny_resnet", "tiny_dropout"])
def test_gradients_sent_in_two_parts_are_the_same(verdict, network):
    found = verdict("jax", network, tuning="tuned", devices=2, strategy="all_reduce")
    assert (found.verdict, found.reason) == ("same", "")


@pytest.mark.parametrize(("network", "several"), [
    ("tiny_resnet", {}), ("tiny_lstm", {}), ("tiny_resnet", {"devices": 2, "strategy": "all_reduce"}),
])
def test_parameters_that_the_device_turns_are_the_same(verdict, network, several):
    found = verdict("jax", network, fault="TurnsOnDevice", **several)
    assert (found.verdict, found.reason) == ("same", "")


@pytest.mark.parametrize("several", [{}, {"devices": 2, "strategy": "all_reduce"}])
def test_reading_the_parameters_compiles_nothing_after_it_was_prepared(worker_for, several):
    task = {**TASK, **several}
    with worker_for("jax", "Prepared", task) as worker:
        worker.ask("hello", 300)
        built = worker.ask("build", 300, network=networks.get("tiny_cnn").to_json(), batch=4, **task)
    assert built["settings"][-1] == "compiled 0"


def test_one_program_turns_the_parameters_of_all_devices_and_a_stale_device_shows(verdict):
    several = {"devices": 2, "strategy": "all_reduce"}
    assert "1 programs, 2 copies" in verdict("jax", "tiny_resnet", fault="Programs", **several).reason
    stale = verdict("jax", "tiny_resnet", fault="StaleOnDevice", **several)
    assert "have come apart: device 1 of 2 holds others than the rest" in stale.reason


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_mixed_precision_is_the_same_within_its_own_tolerance_and_not_within_that_of_fp32(verdict, precision):
    found = verdict("jax", "tiny_lstm", precision=precision)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error > 1e-4


def test_tf32_on_a_cpu_is_unsupported_with_the_reason(verdict):
    found = verdict("jax", "tiny_fcn", precision="tf32")
    assert (found.verdict, found.reason) == ("unsupported", "TF32 is a format of NVIDIA's tensor cores; the CPU has none")


def test_a_gpu_that_jax_does_not_see_is_unsupported_in_its_own_words(verdict):
    found = verdict("jax", "tiny_fcn", device="cuda")
    assert found.verdict == "unsupported"
    assert found.reason.startswith("jax.devices('cuda'): ")


@pytest.mark.parametrize("threads", [1, 3])
def test_xla_has_as_many_threads_as_the_task_says(verdict, threads):
    found = verdict("jax", "tiny_fcn", fault="Threads", threads=threads)
    assert (found.verdict, found.reason) == ("unsupported", f"{threads} threads in XLA's pool")


def test_nesterov_momentum_is_named(verdict):
    found = verdict("jax", "tiny_fcn", fault="Nesterov")
    assert found.verdict == "different"
    assert "Nesterov" in found.reason


def test_a_trainable_input_is_named(verdict):
    found = verdict("jax", "tiny_fcn", fault="TrainableInput")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: image.value" in found.reason


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("jax", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_batch_norm_by_running_averages_is_caught(verdict):
    found = verdict("jax", "tiny_resnet", fault="RunningAverages")
    assert found.verdict == "different"
    assert "loss" in found.reason


def test_relu_on_the_logits_is_caught(verdict):
    found = verdict("jax", "tiny_fcn", plant=add_relu_to_the_logits)
    assert found.verdict == "different"
    assert "loss" in found.reason


def add_relu_to_the_logits(network):
    last = network["layers"][-1]
    network["layers"].append({"name": "relu9", "op": "relu", "inputs": [last["name"]], "attributes": {},
                              "output_shape": last["output_shape"], "parameters": {}})


def test_an_odd_length_that_is_padded_for_cudnn_is_the_same(verdict):
    found = verdict("jax", "tiny_vit", fault="OnCudnn")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


def test_tokens_that_attend_to_the_padding_are_named(verdict):
    assert verdict("jax", "tiny_vit", fault="AttendsToPadding").verdict == "different"
