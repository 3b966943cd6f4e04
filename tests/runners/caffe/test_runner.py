"""Caffe's runner trains the reference's networks, and faults planted in its real code are caught and named."""

import pytest


@pytest.mark.parametrize("threads", [1, 2])
def test_openblas_has_as_many_threads_as_the_task_says(verdict, threads):
    """The worker refuses, with the number that OpenBLAS itself gives: the only way from there to here."""
    found = verdict("caffe", "tiny_fcn", fault="Threads", threads=threads)
    assert (found.verdict, found.reason) == ("unsupported", f"OpenBLAS has {threads} threads")


def test_weights_loaded_after_steps_bring_no_momentum(verdict):
    found = verdict("caffe", "tiny_lstm", fault="Reloads")
    assert (found.verdict, found.reason) == ("same", "")


def test_momentum_that_survives_new_weights_is_caught(verdict):
    found = verdict("caffe", "tiny_fcn", fault="KeepsMomentum")
    assert found.verdict == "different"
    assert "updates of another step" in found.reason


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("caffe", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_batch_norm_without_scale_is_named(verdict):
    found = verdict("caffe", "tiny_resnet", fault="NoScale")
    assert found.verdict == "different"
    assert "batch_norm1: no trained parameter scale" in found.reason


def test_statistics_that_the_solver_trains_are_named(verdict):
    found = verdict("caffe", "tiny_resnet", fault="TrainedStatistics")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: BatchNorm1.0, BatchNorm1.1, BatchNorm1.2" in found.reason


def test_an_lstm_that_keeps_its_state_between_batches_is_caught(verdict):
    found = verdict("caffe", "tiny_lstm", fault="KeepsState")
    assert found.verdict == "different"
    assert "have another momentum" in found.reason


@pytest.mark.parametrize(("task", "reason"), [
    ({"device": "cuda"}, "Cannot use GPU in CPU-only Caffe: check mode."),
    ({"precision": "bf16"}, "Caffe 1.0's blobs are float or double"),
    ({"tuning": "tuned"}, "tuning 'tuned': Caffe's guide to performance"),
])
def test_what_caffe_cannot_do_is_unsupported_with_the_reason(verdict, task, reason):
    found = verdict("caffe", "tiny_fcn", **task)
    assert found.verdict == "unsupported"
    assert reason in found.reason
