"""CNTK's runner trains the reference's networks, and faults planted in its real code are caught and named."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import networks
from harness.data import arrays
from tests.conftest import TASK
from tests.slow import slow

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("threads", [1, 2])
def test_cntk_has_as_many_threads_as_the_task_says(verdict, threads):
    found = verdict("cntk", "tiny_fcn", fault="Threads", threads=threads)
    assert (found.verdict, found.reason) == ("unsupported", f"{threads} threads")


def test_weights_that_are_loaded_again_start_without_momentum(verdict):
    assert verdict("cntk", "tiny_lstm", fault="TrainedBefore").verdict == "same"


def test_momentum_that_outlives_a_load_is_caught(verdict):
    found = verdict("cntk", "tiny_lstm", fault="KeepsMomentum")
    assert found.verdict == "different"
    assert "updates of another step" in found.reason


def test_unit_gain_is_named(verdict):
    found = verdict("cntk", "tiny_fcn", fault="UnitGain")
    assert found.verdict == "different"
    assert "dense4.bias moved 0.1 times as far as it must" in found.reason


def test_a_learning_rate_per_sample_is_named(verdict):
    found = verdict("cntk", "tiny_fcn", fault="PerSample")
    assert found.verdict == "different"
    assert "learning rate 0.2, not 0.05" in found.reason  # of a batch of four


def test_an_embedding_whose_momentum_skips_absent_words_is_named(verdict):
    found = verdict("cntk", "tiny_lstm", fault="SparseEmbedding")
    assert found.verdict == "different"
    assert "in embedding1.weight, not 0.9" in found.reason


def test_the_gates_of_an_lstm_in_another_order_are_caught(verdict):
    found = verdict("cntk", "tiny_lstm", fault="Gates")
    assert found.verdict == "different"
    assert "of 27 gradients differ" in found.reason


def test_gelu_by_tanh_in_place_of_the_error_function_is_caught(verdict):
    found = verdict("cntk", "tiny_vit", fault="TanhGelu")
    assert found.verdict == "different"
    assert "gradients differ" in found.reason


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("cntk", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_a_trainable_input_is_named(verdict):
    found = verdict("cntk", "tiny_fcn", fault="TrainableInput")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: image" in found.reason


def test_a_dead_branch_is_caught(verdict):
    found = verdict("cntk", "tiny_resnet", plant=cut_a_branch)
    assert found.verdict == "different"
    assert found.reason


@pytest.mark.parametrize(("change", "reason"), [
    ({"device": "cuda"}, "Specified GPU device id (0) is invalid."),
    ({"precision": "fp16"}, "FP16 convolution is only supported via cuDNN."),
    ({"precision": "bf16"}, 'data type "bfloat16" is not supported'),
    ({"precision": "tf32"}, "tensor cores"),
    ({"tuning": "tuned"}, "for a CPU it names none"),
])
def test_what_cntk_cannot_do_on_a_cpu_is_unsupported_in_its_own_words(verdict, change, reason):
    found = verdict("cntk", "tiny_fcn", **change)
    assert found.verdict == "unsupported"
    assert reason in found.reason


@pytest.mark.parametrize(("network", "devices"), [("tiny_fcn", 2), pytest.param("tiny_fcn", 4, marks=slow), ("tiny_resnet", 2), ("tiny_lstm", 2)])
def test_ranks_train_as_one_device_with_the_whole_batch_does(verdict, network, devices):
    found = verdict("cntk", network, devices=devices, strategy="data_parallel")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


def test_a_learning_rate_per_sample_is_named_on_two_ranks_too(verdict):
    found = verdict("cntk", "tiny_fcn", fault="PerSample", devices=2, strategy="data_parallel")
    assert found.verdict == "different"
    assert "learning rate 0.4, not 0.05" in found.reason  # of a global batch of eight


def test_a_rank_with_rows_of_another_batch_is_caught(verdict):
    found = verdict("cntk", "tiny_fcn", fault="OtherRows", devices=2, strategy="data_parallel")
    assert found.verdict == "different"
    assert "8 of 8 gradients differ, from the loss backwards first dense4.bias" in found.reason


def test_ranks_that_train_alone_are_caught(verdict):
    found = verdict("cntk", "tiny_fcn", fault="Alone", devices=2, strategy="data_parallel")
    assert found.verdict == "different"
    assert "the devices' parameters have come apart" in found.reason


@pytest.mark.parametrize(("network", "devices"), [("tiny_fcn", 4), ("tiny_lstm", 2)])
def test_a_first_step_of_one_bit_adds_up_to_the_right_one(verdict, network, devices):
    found = verdict("cntk", network, devices=devices, strategy="one_bit")
    assert (found.verdict, found.reason) == ("same", "")


def test_one_bit_sends_in_time_what_it_did_not_send_at_once(worker_for, tmp_path):
    """Without momentum and with small steps, the parameters' moves are the sum of what was sent."""
    network = replace(networks.get("tiny_fcn"), momentum=0.0, learning_rate=1e-3)
    arrays.save_weights(tmp_path / "weights.npz", arrays.draw_weights(network, seed=1))
    inputs, targets = arrays.synthetic_batches(network, 4, 1, seed=1)
    arrays.save_batches(tmp_path / "samples.npz", inputs.reshape(1, 2, 2, -1), targets.reshape(1, 2, 2))
    moves = {}
    for strategy in ("one_bit", "data_parallel"):
        task = {**TASK, "devices": 2, "strategy": strategy}
        with worker_for("cntk", "", task) as worker:
            worker.ask("hello", 300)
            worker.ask("build", 60, network=network.to_json(), batch=2, **task)
            worker.ask("train", 60, start=0, steps=40, residence="device", weights=(str(tmp_path / "weights.npz"), ""),
                       samples=(str(tmp_path / "samples.npz"), 0), out=str(tmp_path / "out.npz"))
        with np.load(tmp_path / "weights.npz") as start, np.load(tmp_path / "out.npz") as out:
            moves[strategy] = [np.concatenate([(out[f"{step}/parameters/{name}"] - start[name]).ravel()
                                               for name in network.parameter_shapes]) for step in (1, 40)]
    once, mean = (np.linalg.norm(sent - right) / np.linalg.norm(right)
                  for sent, right in zip(moves["one_bit"], moves["data_parallel"], strict=True))
    assert once > 0.3
    assert mean < 0.25 * once  # the error is fed back


def test_open_mpi_is_linked_under_its_old_names(tmp_path):
    (tmp_path / "libmpi.so.40").touch()
    (tmp_path / "libmpi_cxx.so.40").touch()
    linked = link_libraries(tmp_path, "".join(f"\t{name} (libc6,x86-64) => {tmp_path}/{name}\n"
                                              for name in ("libmpi.so.40", "libmpi_cxx.so.40")))
    assert (linked.returncode, linked.stderr) == (0, "")
    links = {path.name: path.resolve() for path in (tmp_path / "lib" / "openmpi-1.10").iterdir()}
    assert links == {"libmpi.so.12": tmp_path / "libmpi.so.40", "libmpi_cxx.so.1": tmp_path / "libmpi_cxx.so.40"}


def test_a_machine_without_open_mpi_is_told_what_to_install(tmp_path):
    refused = link_libraries(tmp_path, "\tlibmpi.so.12 (libc6,x86-64) => /nowhere/libmpi.so.12\n")
    assert refused.returncode == 2
    assert refused.stderr == ("libmpi.so.40 is missing (Debian's libopenmpi3 has it): apt-get install libopenmpi3, "
                              "then build this environment again\n")
    assert not (tmp_path / "lib").exists()


def link_libraries(folder, cache):
    """Run the script with a linker's cache of ours, no dpkg, and a Python whose environment is `folder`."""
    write_script(folder / "ldconfig", f"printf '%s' '{cache}'")
    write_script(folder / "dpkg", "exit 1")
    write_script(folder / "python", f"echo {folder}")
    return subprocess.run([CHECKOUT / "scripts" / "link-cntk-libraries", folder / "python"], capture_output=True, text=True,
                          check=False, env={"PATH": f"{folder}:/usr/bin:/bin"})


def write_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def cut_a_branch(network):
    """Let the last addition add the shortcut to itself: its two convolutions no longer reach the loss."""
    addition = [layer for layer in network["layers"] if layer["op"] == "add"][-1]
    addition["inputs"] = [addition["inputs"][1]] * 2
