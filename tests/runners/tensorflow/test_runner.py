"""TensorFlow's runner trains the reference's networks, and faults planted in its network are caught."""

from dataclasses import replace

import numpy as np
import pytest

import networks
from harness.data import arrays
from harness.workers.worker import Failed, Unsupported, Worker
from networks.builder import Builder


@pytest.fixture(scope="module")
def worker(tmp_path_factory, interpreter_of):
    """One process for all tests: a second build in it must not see the first one's settings."""
    log = tmp_path_factory.mktemp("logs") / "tensorflow.log"
    with Worker(interpreter_of("tensorflow"), "runners.tensorflow.runner", log) as worker:
        yield worker


def build(worker, described, **task):
    return worker.ask("build", limit=120, **{"network": described, "batch": 4, **task})


def layer_of(described, name):
    return next(layer for layer in described["layers"] if layer["name"] == name)


def test_resnet8_is_the_same(verdict):
    found = verdict("tensorflow", "resnet8")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


def test_borders_of_images_that_are_not_square_are_the_references(verdict):
    found = verdict("tensorflow", oblong())
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_lstm"])
def test_xla_computes_the_same(verdict, name):
    found = verdict("tensorflow", name, tuning="compiled")
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-4


@pytest.mark.parametrize(("precision", "least", "most"), [("bf16", 1e-3, 5e-2), ("fp16", 1e-4, 1e-2)])
def test_half_precision_is_near_but_not_fp32_and_leaves_the_next_build_alone(verdict, precision, least, most):
    found = verdict("tensorflow", "tiny_lstm", precision=precision)
    assert (found.verdict, found.reason) == ("same", "")
    assert least < found.gradient_error < most
    assert verdict("tensorflow", "tiny_lstm").gradient_error < 1e-4


@pytest.mark.parametrize("tuning", ["stock", "compiled"])
def test_channels_are_normalised_in_bf16(verdict, tuning):
    """TensorFlow's own operation has no kernel in bf16 on CPUs, and XLA refuses its lowering."""
    found = verdict("tensorflow", "tiny_inception", precision="bf16", tuning=tuning)
    assert (found.verdict, found.reason) == ("same", "")


def test_batches_from_host_memory_train_exactly_as_batches_on_the_device(worker, tmp_path):
    network = networks.get("tiny_cnn")
    arrays.save_weights(tmp_path / "weights.npz", arrays.draw_weights(network, seed=1))
    inputs, targets = arrays.synthetic_batches(network, batch=4, count=2, seed=1)
    arrays.save_batches(tmp_path / "samples.npz", inputs[:, None], targets[:, None])
    build(worker, network.to_json())
    found = {}
    for residence in ("device", "host"):
        out = tmp_path / f"{residence}.npz"
        worker.ask("train", 120, weights=(str(tmp_path / "weights.npz"), ""), samples=(str(tmp_path / "samples.npz"), 0),
                   start=0, steps=4, out=str(out), residence=residence)
        with np.load(out) as saved:
            found[residence] = {name: saved[name] for name in saved.files}
    assert set(found["device"]) == set(found["host"])
    assert all(np.array_equal(found["host"][name], value) for name, value in found["device"].items())


def relu_on_the_logits(described):
    last = described["layers"][-1]
    relu = {"name": "relu9", "op": "relu", "inputs": [last["name"]], "attributes": {}, "parameters": {}}
    described["layers"].append({**last, **relu})


def no_relu_after_the_addition(described):
    relu = next(layer for layer in described["layers"] if layer["op"] == "relu" and layer["inputs"][0].startswith("add"))
    described["layers"].remove(relu)
    for layer in described["layers"]:
        layer["inputs"] = [relu["inputs"][0] if source == relu["name"] else source for source in layer["inputs"]]


def keras_default_epsilon(described):
    for layer in described["layers"]:
        if layer["op"] == "batch_norm":
            layer["attributes"]["epsilon"] = 1e-3


def average_for_maximum(described):
    layer_of(described, "max_pool1")["op"] = "avg_pool"


FAULTS = [("tiny_fcn", relu_on_the_logits), ("tiny_resnet", no_relu_after_the_addition), ("tiny_resnet", keras_default_epsilon),
          ("tiny_cnn", average_for_maximum)]


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[plant.__name__ for _, plant in FAULTS])
def test_another_function_has_other_gradients(verdict, name, plant):
    found = verdict("tensorflow", name, plant=plant)
    assert found.verdict == "different"
    assert "gradients differ" in found.reason


@pytest.mark.parametrize(("key", "value", "reason"), [
    ("learning_rate", 0.01, "learning rate 0.01, not 0.05"), ("momentum", 0.0, "8 tensors have another momentum: 0 in"),
])
def test_another_optimiser_is_named(verdict, key, value, reason):
    found = verdict("tensorflow", "tiny_fcn", plant=lambda network: network.update({key: value}))
    assert found.verdict == "different"
    assert reason in found.reason


def test_swapped_widths_name_the_layer(worker):
    described = plain(networks.get("tiny_fcn"))
    layer_of(described, "dense1")["attributes"]["units"] = 24
    layer_of(described, "dense2")["attributes"]["units"] = 16
    with pytest.raises(Failed) as caught:
        build(worker, described)
    assert str(caught.value) == "different: layer dense1: output (24,), the network has (16,)"


def test_a_layer_off_the_path_to_the_loss_is_named(worker):
    described = plain(networks.get("tiny_resnet"))
    add = layer_of(described, "add1")
    add["inputs"] = [add["inputs"][1]] * 2
    with pytest.raises(Failed) as caught:
        build(worker, described)
    assert str(caught.value) == "different: layer conv2d2: no trained parameter weight"


def test_a_bias_too_many_is_named(worker):
    described = plain(networks.get("tiny_resnet"))
    layer_of(described, "conv2d1")["attributes"]["bias"] = True
    with pytest.raises(Failed) as caught:
        build(worker, described)
    assert str(caught.value) == "different: trained parameters that the network has not: conv2d1.bias"


def test_weights_of_another_network_are_refused(worker, tmp_path):
    build(worker, networks.get("tiny_fcn").to_json())
    arrays.save_weights(tmp_path / "weights.npz", {"dense9.weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(Failed) as caught:
        worker.ask("load", 60, weights=str(tmp_path / "weights.npz"))
    assert str(caught.value).startswith("different: weights for other parameters: dense1.bias, dense1.weight")


@pytest.mark.parametrize(("task", "reason"), [
    ({"precision": "tf32"}, "TF32 is a format of NVIDIA's tensor cores; the CPU has none"),
    ({"precision": "int4"}, "precision 'int4': this runner has fp32, tf32, bf16, fp16"),
    ({"tuning": "magic"}, "tuning 'magic': this runner has stock, compiled, tuned, uncompiled"),
    ({"threads": 2}, "TensorFlow fixes devices and threads once a process, start another: "
                     "Intra op parallelism cannot be modified after initialization."),
])
def test_what_tensorflow_cannot_do_is_unsupported_with_its_reason(worker, task, reason):
    build(worker, networks.get("tiny_fcn").to_json())
    with pytest.raises(Unsupported) as caught:
        build(worker, networks.get("tiny_fcn").to_json(), **task)
    assert str(caught.value) == reason


def test_without_a_gpu_cuda_is_unsupported_and_never_runs_on_the_cpu(worker):
    if "device_name" in worker.ask("hello", limit=60):
        pytest.skip("TensorFlow sees a GPU here")
    with pytest.raises(Unsupported) as caught:
        build(worker, networks.get("tiny_fcn").to_json(), device="cuda")
    assert str(caught.value).startswith("TensorFlow sees no GPU: tf.config.list_physical_devices('GPU') is empty in a build")


def plain(network):
    """The network as JSON that a test may change without changing the network."""
    described = network.to_json()
    return {**described, "layers": [{**layer, "attributes": dict(layer["attributes"])} for layer in described["layers"]]}


def oblong():
    """Show what the small networks hide: H is not W, no ReLU makes zeros right as padding, a sigmoid parts flatten from dense."""
    net = Builder(input_shape=(3, 17, 12))
    entry = net.conv(4, kernel=3, stride=2, padding=1)  # Keras's "same" would pad the columns on one side only
    net.max_pool(3, 2, padding=1)
    net.conv(4, kernel=4, padding=1, bias=False)
    left = net.batch_norm()
    net.add(left, net.avg_pool(3, 2, after=entry))
    net.pad_channels(3, after=net.subsample(2))
    net.flatten()
    net.sigmoid()
    net.dense(9)
    net.dense(5)
    return replace(networks.get("tiny_cnn"), name="oblong", input_shape=net.input_shape, classes=5, layers=tuple(net.layers))


@pytest.mark.parametrize(("precision", "path"), [("bf16", "False"), ("fp32", "auto")])
def test_an_lstm_keeps_off_cudnn_in_bf16_alone(verdict, precision, path):
    found = verdict("tensorflow", "tiny_lstm", fault="NamesItsLstm", precision=precision)
    assert (found.verdict, found.reason) == ("different", f"different: use_cudnn {path}")
