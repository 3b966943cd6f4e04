"""Paddle's runner trains the reference's networks, and faults planted in its real code are caught and named."""

import pytest

from tests.slow import slow


@pytest.mark.parametrize("network", ["tiny_cnn", "tiny_resnet", "tiny_lstm", "tiny_llama"])
def test_a_static_program_and_the_multi_tensor_optimiser_are_the_same(verdict, network):
    found = verdict("paddle", network, tuning="tuned")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_auto_cast_that_would_do_nothing_is_unsupported_in_paddles_own_words(verdict, precision):
    found = verdict("paddle", "tiny_fcn", precision=precision)
    assert found.verdict == "unsupported"
    assert "current place is Place(cpu), so it makes no effect" in found.reason


def test_tf32_on_a_cpu_is_unsupported_with_the_reason(verdict):
    found = verdict("paddle", "tiny_fcn", precision="tf32")
    assert (found.verdict, found.reason) == ("unsupported", "TF32 is a format of NVIDIA's tensor cores; the CPU has none")


def test_a_gpu_that_paddle_does_not_see_is_unsupported_in_its_own_words(verdict):
    found = verdict("paddle", "tiny_fcn", device="cuda")
    assert found.verdict == "unsupported"
    assert found.reason.startswith("paddle.device.set_device: ")


@pytest.mark.parametrize("threads", [1, 3])
def test_every_thread_of_paddle_has_as_many_openmp_threads_as_the_task_says(verdict, threads):
    found = verdict("paddle", "tiny_fcn", fault="Threads", threads=threads)
    assert (found.verdict, found.reason) == ("unsupported", f"OpenMP gives {threads} threads here and {threads} elsewhere")


@pytest.mark.parametrize("tuning", ["stock", "tuned"])
def test_nesterov_momentum_is_named(verdict, tuning):
    found = verdict("paddle", "tiny_fcn", fault="Nesterov", tuning=tuning)
    assert found.verdict == "different"
    assert "Nesterov" in found.reason


def test_a_second_bias_that_is_trained_is_named(verdict):
    found = verdict("paddle", "tiny_lstm", fault="SecondBias")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: parts.lstm1.bias_hh_l0" in found.reason


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("paddle", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_a_dead_branch_is_caught(verdict):
    found = verdict("paddle", "tiny_resnet", plant=cut_a_branch)
    assert found.verdict == "different"
    assert found.reason


@pytest.mark.parametrize(("network", "devices", "tuning"), [
    pytest.param("tiny_fcn", 4, "stock", marks=slow), ("tiny_resnet", 2, "stock"), ("tiny_lstm", 2, "stock"), ("tiny_cnn", 2, "tuned"),
])
def test_ranks_train_as_one_device_with_the_whole_batch_does(verdict, network, devices, tuning):
    found = verdict("paddle", network, devices=devices, strategy="all_reduce", tuning=tuning)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


def test_gradients_that_are_added_up_and_not_averaged_are_named(verdict):
    found = verdict("paddle", "tiny_fcn", fault="Sums", devices=2, strategy="all_reduce")
    assert found.verdict == "different"
    assert "the sum over 2 devices instead of the mean" in found.reason


def test_a_rank_with_rows_of_another_batch_is_caught(verdict):
    found = verdict("paddle", "tiny_fcn", fault="OtherRows", devices=2, strategy="all_reduce")
    assert found.verdict == "different"
    assert "8 of 8 gradients differ, from the loss backwards first dense4.bias" in found.reason


def test_ranks_that_train_alone_are_caught(verdict):
    found = verdict("paddle", "tiny_fcn", fault="Alone", devices=2, strategy="all_reduce")
    assert found.verdict == "different"
    assert "the devices' parameters have come apart" in found.reason


def cut_a_branch(network):
    """Let the last addition add the shortcut to itself: its two convolutions no longer reach the loss."""
    addition = [layer for layer in network["layers"] if layer["op"] == "add"][-1]
    addition["inputs"] = [addition["inputs"][1]] * 2
