"""MXNet's runner trains the reference's networks, and faults planted in its real code are caught and named.

The worker runs under the interpreter that DLBENCH_MXNET_PYTHON names, or in the environment that dlbench has built.
"""

import pytest

import networks
from harness.workers.worker import Unsupported, Worker
from tests.conftest import environment_of, needs_avx512


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize("network", ["tiny_resnet", "tiny_lstm"])
def test_tuned_is_the_same(verdict, network):
    found = verdict("mxnet", network, tuning="tuned")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@needs_avx512
@pytest.mark.parametrize("network", ["tiny_fcn", "tiny_lstm"])
def test_bf16_is_the_same_within_its_own_tolerance_and_not_within_that_of_fp32(verdict, network):
    found = verdict("mxnet", network, precision="bf16")
    assert found.verdict == "same"
    assert found.gradient_error > 1e-4


def test_fp16_on_a_cpu_is_unsupported_in_the_words_of_mxnet(verdict):
    found = verdict("mxnet", "tiny_cnn", precision="fp16")
    assert (found.verdict, found.reason) == (
        "unsupported", "MXNet cannot train tiny_cnn in fp16 stock on cpu: FP16 gemm on cpu not implemented!")


def test_tf32_on_a_cpu_is_unsupported_with_the_reason(verdict):
    found = verdict("mxnet", "tiny_fcn", precision="tf32")
    assert (found.verdict, found.reason) == ("unsupported", "TF32 is a format of NVIDIA's tensor cores; the CPU has none")


def test_a_gpu_that_mxnet_does_not_see_is_unsupported(verdict):
    found = verdict("mxnet", "tiny_fcn", device="cuda")
    assert found.verdict == "unsupported"
    assert found.reason.startswith("mx.context.num_gpus() is 0 in a build with")


def test_threads_are_those_that_mxnet_was_loaded_with(verdict, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert verdict("mxnet", "tiny_fcn", threads=2).verdict == "same"
    found = verdict("mxnet", "tiny_fcn", threads=1)
    assert (found.verdict, found.reason) == (
        "unsupported", "1 threads: MXNet took OMP_NUM_THREADS=2 as it was loaded; start another process")


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("mxnet", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_batch_norm_without_scale_is_named(verdict):
    found = verdict("mxnet", "tiny_resnet", fault="NoScale")
    assert found.verdict == "different", found.reason
    assert "batch_norm1: no trained parameter scale" in found.reason


def test_batch_norm_by_running_statistics_is_caught(verdict):
    found = verdict("mxnet", "tiny_resnet", fault="PredictMode")
    assert found.verdict == "different"
    assert "loss" in found.reason


def test_a_trained_second_bias_is_named(verdict):
    found = verdict("mxnet", "tiny_lstm", fault="TwoBiases")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: lstm1_l0_h2h_bias, lstm2_l0_h2h_bias" in found.reason


def test_a_step_that_forgets_the_batch_is_named(verdict):
    found = verdict("mxnet", "tiny_fcn", fault="BatchTwice")
    assert found.verdict == "different"
    assert "learning rate 0.2, not 0.05" in found.reason


def test_nesterov_momentum_is_named(verdict):
    found = verdict("mxnet", "tiny_fcn", fault="Nesterov")
    assert found.verdict == "different"
    assert "Nesterov" in found.reason


def test_subgraphs_for_inference_are_caught(verdict):
    found = verdict("mxnet", "tiny_fcn", fault="Subgraph")
    assert found.verdict == "different"
    assert "gradients differ" in found.reason


def test_relu_on_the_logits_is_caught(verdict):
    found = verdict("mxnet", "tiny_fcn", plant=add_relu_to_the_logits)
    assert found.verdict == "different"
    assert "loss" in found.reason


@needs_avx512
def test_a_process_that_went_bf16_refuses_fp32(tmp_path):
    environment = environment_of("mxnet")
    network = networks.get("tiny_fcn").to_json()
    with Worker(environment.interpreter, "runners.mxnet.runner", tmp_path / "log", environment.variables) as worker:
        worker.ask("build", 300, network=network, batch=2, precision="bf16")
        with pytest.raises(Unsupported, match="float32 after bfloat16"):
            worker.ask("build", 300, network=network, batch=2, precision="fp32")


def add_relu_to_the_logits(network):
    last = network["layers"][-1]
    network["layers"].append({"name": "relu9", "op": "relu", "inputs": [last["name"]], "attributes": {},
                              "output_shape": last["output_shape"], "parameters": {}})
