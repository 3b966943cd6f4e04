"""PyTorch's runner trains the reference's networks, and faults planted in its real code are caught and named."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import networks
from harness.data import arrays
from harness.workers.worker import Unsupported, Worker
from tests.conftest import TASK, needs_avx512, needs_compiler

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("network", ["tiny_fcn", pytest.param("tiny_lstm", marks=needs_avx512)])
def test_bf16_is_the_same_within_its_own_tolerance_and_not_within_that_of_fp32(verdict, network):
    found = verdict("pytorch", network, precision="bf16")
    assert found.verdict == "same"
    assert found.gradient_error > 1e-4


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_processor_without_half_precision_lstms_is_unsupported_in_onednns_words(verdict, precision):
    assert verdict("pytorch", "tiny_lstm", fault="WithoutPrimitive").verdict == "same"
    found = verdict("pytorch", "tiny_lstm", fault="WithoutPrimitive", precision=precision)
    assert (found.verdict, found.reason) == (
        "unsupported", f"{precision} LSTM on this processor: could not create a primitive descriptor for the LSTM")


def test_tf32_on_a_cpu_is_unsupported_with_the_reason(verdict):
    found = verdict("pytorch", "tiny_fcn", precision="tf32")
    assert (found.verdict, found.reason) == ("unsupported", "TF32 is a format of NVIDIA's tensor cores; the CPU has none")


def test_nesterov_momentum_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="Nesterov")
    assert found.verdict == "different"
    assert "Nesterov" in found.reason


def test_an_ignored_learning_rate_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="LearningRate")
    assert found.verdict == "different"
    assert "learning rate 0.1, not 0.05" in found.reason


def test_a_trainable_input_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="TrainableInput")
    assert found.verdict == "different"
    assert "trained parameters that the network has not: parts.image" in found.reason


def test_batch_norm_without_scale_is_named(verdict):
    found = verdict("pytorch", "tiny_resnet", fault="NoScale")
    assert found.verdict == "different"
    assert "batch_norm1: no trained parameter scale" in found.reason


def test_pooling_that_rounds_up_is_named(verdict):
    found = verdict("pytorch", "tiny_cnn", fault="Ceil")
    assert found.verdict == "different"
    assert "max_pool1: output (4, 9, 9), the network has (4, 8, 8)" in found.reason


def test_groups_that_are_ignored_are_named(verdict):
    found = verdict("pytorch", "tiny_inception", fault="NoGroups")
    assert found.verdict == "different"
    assert "conv2d2: weight (6, 8, 5, 5), the network has (6, 4, 5, 5)" in found.reason


def test_an_lrn_whose_alpha_is_not_divided_by_its_size_is_caught(verdict):
    """Where dropout's masks do not hide it."""
    found = verdict("pytorch", without_dropout(networks.get("tiny_inception")), fault="LrnAlpha")
    assert found.verdict == "different"
    assert "loss" in found.reason
    assert "gradients differ" in found.reason


def test_relu_on_the_logits_is_caught(verdict):
    found = verdict("pytorch", "tiny_fcn", plant=add_relu_to_the_logits)
    assert found.verdict == "different"
    assert "loss" in found.reason


def test_a_dead_branch_is_caught_with_the_layer_where_it_begins(verdict):
    found = verdict("pytorch", "tiny_resnet", plant=cut_a_branch)
    assert found.verdict == "different"
    assert "gradients differ" in found.reason


@needs_compiler
def test_a_worker_at_rest_empties_the_cached_memory_when_its_model_is_gone(tmp_path, worker_for):
    network = networks.get("tiny_fcn")
    arrays.save_weights(tmp_path / "weights.npz", arrays.draw_weights(network, seed=1))
    arrays.save_batches(tmp_path / "batches.npz", *arrays.synthetic_batches(network, 4, 2, seed=1))
    with worker_for("pytorch", "ReturnsMemory", dict(TASK)) as worker:
        before = worker.log.stat().st_size  # earlier tests have used this worker
        for built, tuning in enumerate(("stock", "tuned"), start=1):
            worker.ask("build", limit=120, network=network.to_json(), batch=4, tuning=tuning)
            worker.ask("load", limit=60, weights=str(tmp_path / "weights.npz"))
            worker.ask("feed", limit=60, batches=str(tmp_path / "batches.npz"), residence="host")
            worker.ask("run", limit=300, steps=2)
            assert worker.ask("rest", limit=60) == {}
            # Before each build too.
            said = worker.log.read_bytes()[before:].decode()
            assert said.count("emptied beside 0 models") == 2 * built


def test_torch_compile_without_a_compiler_is_unsupported_with_a_remedy(interpreter_of, tmp_path):
    with Worker(interpreter_of("pytorch"), "runners.pytorch.runner", tmp_path / "log", {"CXX": "no-such-compiler"}) as worker:
        task = {**TASK, "network": networks.get("tiny_fcn").to_json(), "batch": 4}
        worker.ask("build", 120, **task)
        with pytest.raises(Unsupported, match=r"C\+\+ compiler on CPUs, and no-such-compiler was not found: apt-get"):
            worker.ask("build", 120, **{**task, "tuning": "compiled"})


COMPILED = """
import json, sys, torch
from runners.pytorch.layers import Net

graphs = []
def recorded(graph, examples):
    graphs.extend(node.name for node in graph.graph.nodes if node.op.startswith("call"))
    return graph
words = torch.zeros(2, 5, dtype=torch.long)
torch.compile(Net(json.loads(sys.argv[1])), backend=recorded)(words).sum().backward()
print(*graphs)
"""


def test_an_lstm_that_breaks_the_graph_leaves_the_other_layers_to_the_compiler(interpreter_of):
    network = networks.get("tiny_lstm").to_json()
    said = subprocess.run([interpreter_of("pytorch"), "-c", COMPILED, json.dumps(network)], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, timeout=120, check=True).stdout.split()
    assert [layer["op"] for layer in network["layers"]] == ["embedding", "lstm", "lstm", "dense"]
    assert said == ["parts_embedding1", "parts_dense1"]


def add_relu_to_the_logits(network):
    last = network["layers"][-1]
    network["layers"].append({"name": "relu9", "op": "relu", "inputs": [last["name"]], "attributes": {},
                              "output_shape": last["output_shape"], "parameters": {}})


def cut_a_branch(network):
    """Let the last addition add the shortcut to itself: its two convolutions no longer reach the loss."""
    addition = [layer for layer in network["layers"] if layer["op"] == "add"][-1]
    addition["inputs"] = [addition["inputs"][1]] * 2


def without_dropout(network):
    sources = {layer.name: layer.inputs[0] for layer in network.layers if layer.op == "dropout"}
    layers = [replace(layer, inputs=tuple(sources.get(name, name) for name in layer.inputs))
              for layer in network.layers if layer.op != "dropout"]
    return replace(network, name="no_dropout", layers=tuple(layers))
