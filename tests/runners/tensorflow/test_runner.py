"""TensorFlow's runner against the float64 reference, through the worker's own commands, and planted faults that must show."""

from dataclasses import replace

import numpy as np
import pytest

import networks
from harness.data import arrays
from harness.workers.worker import Failed, Unsupported, Worker
from networks.builder import Builder
from runners.reference import runner
from runners.session import Session

STEPS = 4
SAME = 1e-4  # relative L2 error a gradient tensor in fp32; half precision is looser


@pytest.fixture(scope="module")
def worker(tmp_path_factory, interpreter_of):
    """One process for all tests: a second build in it must not see the first one's settings."""
    log = tmp_path_factory.mktemp("logs") / "tensorflow.log"
    with Worker(interpreter_of("tensorflow"), "runners.tensorflow.runner", log) as worker:
        yield worker


@pytest.fixture
def train(worker, tmp_path):
    """Build `described` (the network itself where no fault is planted) and answer (losses, arrays) of its check."""

    def train(network, described=None, weights=None, residence="device", **task):
        files = write_arrays(network, tmp_path, weights)
        build(worker, described or network.to_json(), **task)
        worker.ask("load", limit=60, weights=files["weights"])
        worker.ask("feed", limit=60, batches=files["batches"], residence=residence)
        losses = worker.ask("check", limit=120, steps=STEPS, out=files["out"])["losses"]
        return losses, dict(np.load(files["out"]))

    return train


@pytest.fixture
def reference(tmp_path):
    def reference(network):
        files = write_arrays(network, tmp_path)
        session = Session(runner.Runner)
        session.build(network=network.to_json(), batch=4, dropout=False)
        session.load(files["weights"])
        session.feed(files["batches"], "device")
        losses = session.check(STEPS, files["out"])["losses"]
        return losses, dict(np.load(files["out"]))

    return reference


def build(worker, described, **task):
    return worker.ask("build", limit=120, **{"network": described, "batch": 4, "dropout": False, **task})


def write_arrays(network, folder, weights=None):
    files = {name: str(folder / f"{name}.npz") for name in ("weights", "batches", "out")}
    arrays.save_weights(files["weights"], weights or arrays.draw_weights(network, seed=1))
    arrays.save_batches(files["batches"], *arrays.synthetic_batches(network, batch=4, count=2, seed=1))
    return files


def errors(ours, reference):
    """Largest relative errors: (of a loss, of a gradient tensor, of a tensor's whole movement)."""
    (losses, tensors), (wanted, truth) = ours, reference
    assert set(tensors) == set(truth)
    worst = {kind: max(relative(tensors[name], truth[name]) for name in truth if name.startswith(kind))
             for kind in ("gradient", "parameter")}
    return max(abs(ours / wanted - 1) for ours, wanted in zip(losses, wanted, strict=True)), worst["gradient"], worst["parameter"]


def relative(ours, truth):
    return np.linalg.norm(ours - truth) / np.linalg.norm(truth)


def layer_of(described, name):
    return next(layer for layer in described["layers"] if layer["name"] == name)


def test_the_small_networks_use_every_operation_that_the_reference_knows():
    used = {layer.op for name in networks.names(small=True) for layer in networks.get(name).layers}
    assert used == set(runner.OPERATIONS)


@pytest.mark.parametrize("name", networks.names(small=True))
def test_a_network_has_the_reference_losses_gradients_and_updates(train, reference, name):
    network = networks.get(name)
    loss_error, gradient_error, parameter_error = errors(train(network), reference(network))
    assert loss_error < 1e-5
    assert gradient_error < SAME
    assert parameter_error < SAME  # of what began at zero and moved by gradients: 2e-5 in resnet8 on an AMD EPYC


def test_borders_of_images_that_are_not_square_are_the_references(train, reference):
    network = oblong()
    loss_error, gradient_error, _ = errors(train(network), reference(network))
    assert loss_error < 1e-5
    assert gradient_error < SAME


@pytest.mark.parametrize("name", ["tiny_dropout", "tiny_lstm"])
def test_xla_computes_the_same(train, reference, name):
    network = networks.get(name)
    loss_error, gradient_error, _ = errors(train(network, tuning="tuned"), reference(network))
    assert loss_error < 1e-5
    assert gradient_error < SAME


@pytest.mark.parametrize(("precision", "least", "most"), [("bf16", 1e-3, 5e-2), ("fp16", 1e-4, 1e-2)])
def test_half_precision_is_near_but_not_fp32_and_leaves_the_next_build_alone(train, reference, precision, least, most):
    network = networks.get("tiny_lstm")
    truth = reference(network)
    assert least < errors(train(network, precision=precision), truth)[1] < most
    assert errors(train(network), truth)[1] < SAME


def test_batches_from_host_memory_train_exactly_as_batches_on_the_device(train):
    network = networks.get("tiny_cnn")
    device, host = train(network), train(network, residence="host")
    assert host[0] == device[0]
    assert all(np.array_equal(host[1][name], device[1][name]) for name in device[1])


def test_loading_weights_forgets_the_optimiser(worker, train, tmp_path):
    network = networks.get("tiny_lstm")
    first, _ = train(network)
    worker.ask("load", limit=60, weights=str(tmp_path / "weights.npz"))
    worker.ask("feed", limit=60, batches=str(tmp_path / "batches.npz"), residence="device")
    assert worker.ask("check", limit=60, steps=STEPS, out=str(tmp_path / "again.npz"))["losses"] == first


def test_dropout_acts_only_where_the_task_has_it(train, reference):
    network = networks.get("tiny_dropout")
    assert errors(train(network, dropout=True), reference(network))[0] > 1e-2


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
def test_another_function_has_other_gradients(train, reference, name, plant):
    network = networks.get(name)
    described = plain(network)
    plant(described)
    assert errors(train(network, described), reference(network))[1] > 10 * SAME


def test_gates_in_another_order_have_other_gradients(train, reference):
    network = networks.get("tiny_lstm")
    weights = arrays.draw_weights(network, seed=1)
    for name, value in weights.items():
        if name.startswith("lstm"):
            weights[name] = np.concatenate([np.split(value, 4)[gate] for gate in (0, 2, 1, 3)])
    truth = reference(network)
    assert errors(train(network, weights=weights), truth)[1] > 10 * SAME


@pytest.mark.parametrize(("key", "value"), [("learning_rate", 0.01), ("momentum", 0.0)])
def test_another_optimiser_has_the_same_gradients_and_moves_elsewhere(train, reference, key, value):
    network = networks.get("tiny_fcn")
    _, gradient_error, parameter_error = errors(train(network, {**plain(network), key: value}), reference(network))
    assert gradient_error < SAME
    assert parameter_error > 1e-3


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


def test_weights_of_another_network_are_refused(train):
    with pytest.raises(Failed) as caught:
        train(networks.get("tiny_fcn"), weights={"dense9.weight": np.zeros((2, 2), np.float32)})
    assert str(caught.value).startswith("different: weights for other parameters: dense1.bias, dense1.weight")


@pytest.mark.parametrize(("task", "reason"), [
    ({"precision": "tf32"}, "TF32 is a format of NVIDIA's tensor cores; the CPU has none"),
    ({"precision": "int4"}, "precision 'int4': this runner has fp32, tf32, bf16, fp16"),
    ({"tuning": "magic"}, "tuning 'magic': this runner has stock, tuned"),
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
