"""The judge judged: its backward pass against finite differences, its update against the formula, and planted faults that each of
these must see. What each operation computes is in test_reference_operations.py."""

import json
import os
import shutil
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import networks
from harness.environments import store
from networks.builder import Builder
from runners.protocol import Different, Task, Unsupported
from runners.reference import llama, transformers
from runners.reference import operations as reference
from runners.reference.runner import OPERATIONS, Runner
from runners.session import Session

ROOT = Path(__file__).resolve().parents[3]
TINY = ["tiny_fcn", "tiny_cnn", "tiny_dropout", "tiny_inception", "tiny_resnet", "tiny_bottleneck", "tiny_lstm",
        "tiny_gpt", "tiny_vit", "tiny_llama"]
OLD_PYTHON_FILES = ["runners/__init__.py", "runners/__main__.py", "runners/protocol.py",
                    "runners/session.py", "runners/resources.py", "runners/wire.py", "runners/comparisons.py", "runners/reference/operations.py", "runners/reference/runner.py",
                    "runners/reference/transformers.py", "runners/reference/llama.py"]


def draw_weights(network, seed=1):
    """Weights that leave nothing degenerate: no bias and no shift is zero, no scale is one."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in network.parameter_shapes.items():
        mean, deviation = float(name.endswith("scale")), 1 / np.sqrt(max(np.prod(shape[1:]), 10))
        weights[name] = random.normal(mean, deviation, shape).astype(np.float32)
    return weights


def draw_batches(network, batches=2, batch=4, seed=2):
    random = np.random.default_rng(seed)
    shape = (batches, batch, *network.input_shape)
    inputs = random.integers(0, network.vocabulary, shape) if network.vocabulary else random.normal(size=shape)
    targets = random.integers(0, network.classes, (batches, batch, *network.target_shape))
    return inputs.astype(np.int32 if network.vocabulary else np.float32), targets.astype(np.int32)


def ready(network, runner_class=Runner, residence="device", **task):
    runner = runner_class(Task(network.to_json(), batch=4, **{"dropout": False, **task}))
    runner.load(draw_weights(network))
    runner.feed(*draw_batches(network), residence)
    return runner


def gradients_of(runner):
    return dict(runner.differentiate(*runner.ring[0])[1])


def gradient_errors(network, runner_class, entries=10, epsilon=1e-5):
    """Largest difference between gradients and central differences, relative to the tensor's largest gradient."""
    runner = ready(network, runner_class)
    gradients = gradients_of(runner)

    def loss_with(flat, entry, value):
        original, flat[entry] = flat[entry], value
        loss, _ = runner.differentiate(*runner.ring[0])
        flat[entry] = original
        return loss

    errors = {}
    for name, gradient in gradients.items():
        flat = runner.weights[name].reshape(-1)
        assert flat.base is not None
        chosen = np.random.default_rng(3).permutation(flat.size)[:entries]
        differences = [(loss_with(flat, entry, flat[entry] + epsilon)
                        - loss_with(flat, entry, flat[entry] - epsilon)) / (2 * epsilon) for entry in chosen]
        errors[name] = np.abs(gradient.reshape(-1)[chosen] - differences).max() / np.abs(gradient).max()
    return errors


@pytest.mark.parametrize("name", TINY)
def test_gradients_are_the_slopes_of_the_loss(name):
    network = networks.get(name)
    errors = gradient_errors(network, Runner)
    assert set(errors) == set(network.parameter_shapes)
    assert {parameter: error for parameter, error in errors.items() if not error < 1e-6} == {}


def test_the_tiny_networks_have_every_operation():
    assert {layer.op for name in TINY for layer in networks.get(name).layers} == set(OPERATIONS)


@pytest.mark.parametrize(("name", "op", "fault"), [
    ("tiny_cnn", "relu", lambda a, w, saved, dy: ([dy], {})),
    ("tiny_cnn", "avg_pool", lambda a, w, saved, dy: ([2 * reference.avg_pool_backward(a, w, saved, dy)[0][0]], {})),
    ("tiny_inception", "lrn", lambda a, w, saved, dy: ([dy * saved[1] ** -a["beta"]], {})),
    ("tiny_inception", "concat", lambda a, w, channels, dy: (
        reference.concat_backward(a, w, channels[::-1], dy)[0][::-1], {})),
    ("tiny_resnet", "add", lambda a, w, saved, dy: ([dy, 0 * dy], {})),
    ("tiny_resnet", "batch_norm", lambda a, w, saved, dy: (
        [w["scale"][:, None, None] * dy / saved[1]], reference.batch_norm_backward(a, w, saved, dy)[1])),
    ("tiny_vit", "layer_norm", lambda a, w, saved, dy: (
        [w["scale"] * dy / saved[1]], transformers.layer_norm_backward(a, w, saved, dy)[1])),
    ("tiny_vit", "gelu", lambda a, w, x, dy: transformers.gelu_backward({"tanh": True}, w, 0.9 * x, dy)),
    ("tiny_gpt", "attention", lambda a, w, x, dy: transformers.attention_backward({**a, "causal": False}, w, x, dy)),
    ("tiny_llama", "rms_norm", lambda a, w, saved, dy: (
        [w["scale"] * dy / saved[1]], llama.rms_norm_backward(a, w, saved, dy)[1])),
    ("tiny_llama", "rotary", lambda a, w, saved, dy: ([llama.turned(a, dy, 1)], {})),
    ("tiny_llama", "grouped_attention", lambda a, w, saved, dy: (
        [1.1 * each for each in llama.grouped_attention_backward(a, w, saved, dy)[0]], {})),
    ("tiny_llama", "swiglu", lambda a, w, saved, dy: (
        llama.swiglu_backward(a, w, saved, dy)[0][::-1], {})),
    ("tiny_gpt", "tied_dense", lambda a, w, x, dy: (
        transformers.tied_dense_backward(a, w, x, dy)[0], {"weight": 0 * w["weight"]})),
])
def test_finite_differences_see_a_wrong_backward_pass(name, op, fault):
    class Faulty(Runner):
        operations = {**OPERATIONS, op: (OPERATIONS[op][0], fault)}

    assert max(gradient_errors(networks.get(name), Faulty, entries=5).values()) > 1e-2


def test_dropout_follows_its_seed_and_can_be_off():
    network = networks.get("tiny_dropout")
    losses = []
    for task in ({"dropout": True, "seed": 1}, {"dropout": True, "seed": 1}, {"dropout": True, "seed": 2}, {"dropout": False}):
        runner = ready(network, **task)
        runner.step()
        losses.append(runner.loss())
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


def momentum_error(runner_class):
    """Largest distance of three steps' parameters from v = 0.9 v + g, w = w - 0.05 v done by hand."""
    network = networks.get("tiny_fcn")
    runner = ready(network, runner_class)
    inputs, targets = draw_batches(network, batches=1)
    runner.feed(inputs, targets, "device")
    weights = {name: array.astype(np.float64) for name, array in draw_weights(network).items()}
    velocities = {name: 0.0 for name in weights}
    for _ in range(3):
        for name, gradient in gradients_of(runner).items():
            velocities[name] = 0.9 * velocities[name] + gradient
            weights[name] = weights[name] - 0.05 * velocities[name]
        runner.step()
    return max(np.abs(array - weights[name]).max() for name, array in runner.parameters().items())


def test_the_update_is_sgd_with_momentum():
    assert momentum_error(Runner) < 1e-15


def test_nesterov_is_another_optimiser():
    class Nesterov(Runner):
        def update(self, name, gradient):
            self.velocities[name] = 0.9 * self.velocities[name] + gradient
            self.weights[name] = self.weights[name] - 0.05 * (gradient + 0.9 * self.velocities[name])

    assert momentum_error(Nesterov) > 1e-4


def test_loading_weights_forgets_the_momentum():
    network = networks.get("tiny_fcn")
    runner = ready(network)
    losses = []
    for _ in range(2):
        runner.load(draw_weights(network))
        runner.feed(*draw_batches(network), "device")
        for _ in range(3):
            runner.step()
        losses.append(runner.loss())
    assert losses[0] == losses[1]


def test_gradients_leave_parameters_and_batches_where_they_are():
    network = networks.get("tiny_bottleneck")
    runner, untouched = ready(network), ready(network)
    before = runner.parameters()
    gradients_of(runner)
    assert all(np.array_equal(array, before[name]) for name, array in runner.parameters().items())
    for _ in range(2):
        runner.step()
        untouched.step()
    assert runner.loss() == untouched.loss()


def test_shards_are_normalised_by_themselves_and_their_gradients_are_averaged():
    network = networks.get("tiny_bottleneck")
    inputs, targets = draw_batches(network)
    sharded = ready(network, devices=2)
    wanted = []
    for rows in (slice(0, 2), slice(2, 4)):
        shard = ready(network)
        shard.feed(inputs[:, rows], targets[:, rows], "device")
        wanted.append(gradients_of(shard))
    whole = gradients_of(ready(network))
    for name, gradient in gradients_of(sharded).items():
        assert gradient == pytest.approx((wanted[0][name] + wanted[1][name]) / 2, abs=1e-13)
    assert any(np.abs(gradient - whole[name]).max() > 1e-3 for name, gradient in gradients_of(sharded).items())


def test_parameters_are_copies():
    runner = ready(networks.get("tiny_fcn"))
    before = runner.parameters()
    kept = {name: array.copy() for name, array in before.items()}
    runner.step()
    assert all(np.array_equal(before[name], kept[name]) for name in kept)
    assert not any(np.array_equal(array, kept[name]) for name, array in runner.parameters().items())


def test_the_ring_of_batches_starts_again_after_its_last():
    network = networks.get("tiny_fcn")
    inputs, targets = draw_batches(network)
    runner, straight = ready(network), ready(network)
    straight.feed(inputs[[0, 1, 0]], targets[[0, 1, 0]], "host")
    for _ in range(3):
        runner.step()
        straight.step()
    assert runner.loss() == straight.loss()


def test_weights_of_another_shape_are_refused():
    network = networks.get("tiny_fcn")
    runner, weights = ready(network), draw_weights(network)
    weights["dense2.bias"] = weights["dense2.bias"][:1]  # NumPy would broadcast it
    with pytest.raises(ValueError, match=r"weights of dense2.bias: \(1,\), the network has \(24,\)"):
        runner.load(weights)


def test_a_layer_off_the_path_to_the_loss_has_gradients_of_zero():
    net = Builder((4,))
    first = net.dense(3)
    net.dense(5)
    net.dense(2, after=first)
    network = replace(networks.get("tiny_fcn"), input_shape=(4,), classes=2, layers=tuple(net.layers))
    gradients = gradients_of(ready(network))
    assert {name: bool(np.any(gradient)) for name, gradient in gradients.items()} == {
        "dense1.weight": True, "dense1.bias": True, "dense2.weight": False, "dense2.bias": False,
        "dense3.weight": True, "dense3.bias": True}


def spoil(name, layer, **changes):
    network = json.loads(json.dumps(networks.get(name).to_json()))
    next(each for each in network["layers"] if each["name"] == layer).update(changes)
    return network


@pytest.mark.parametrize(("network", "message"), [
    (spoil("tiny_cnn", "max_pool1", output_shape=[4, 9, 9]), r"layer max_pool1: output \(4, 8, 8\), the network has \(4, 9, 9\)"),
    (spoil("tiny_fcn", "dense2", parameters={"weight": [16, 24], "bias": [24]}),
     r"layer dense2: weight \(24, 16\), the network has \(16, 24\)"),
    (spoil("tiny_resnet", "batch_norm1", parameters={"shift": [4]}),
     r"trained parameters that the network has not: batch_norm1.scale"),
    (spoil("tiny_resnet", "conv2d1", parameters={"weight": [4, 3, 3, 3], "bias": [4]}),
     "layer conv2d1: no trained parameter bias"),
    (spoil("tiny_resnet", "add2", inputs=["batch_norm5", "relu3"]), r"layer add2: adds \(6, 4, 4\) and \(4, 8, 8\)"),
    (spoil("tiny_fcn", "dense1", op="conv2d", attributes={"filters": 16, "kernel": 1, "stride": 1, "padding": 0, "bias": True,
                                                   "groups": 1}),
     "layer dense1: "),
    (spoil("tiny_fcn", "dense1", op="max_pool", attributes={"kernel": 1, "stride": 1, "padding": 0, "ceil": False}),
     "layer dense1: "),
])
def test_a_wrong_description_dies_with_the_name_of_its_layer(network, message):
    with pytest.raises(Different, match=message):
        Runner(Task(network, batch=4))


def test_pooling_that_rounds_up_is_another_network():
    def ceil_pool(a, w, x):
        return OPERATIONS["max_pool"][0](a, w, np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf))

    class Ceil(Runner):
        operations = {**OPERATIONS, "max_pool": (ceil_pool, OPERATIONS["max_pool"][1])}

    with pytest.raises(Different, match=r"layer max_pool1: output \(4, 9, 9\), the network has \(4, 8, 8\)"):
        ready(networks.get("tiny_cnn"), Ceil)


@pytest.mark.parametrize(("task", "message"), [
    ({"device": "cuda"}, "device 'cuda': NumPy runs on the CPU alone"),
    ({"precision": "bf16"}, "precision 'bf16': the reference computes in float64 and judges fp32"),
    ({"tuning": "tuned"}, "tuning 'tuned': the reference has only stock"),
])
def test_what_the_reference_cannot_do_is_unsupported(task, message):
    with pytest.raises(Unsupported, match=message):
        ready(networks.get("tiny_fcn"), **task)


def test_an_unknown_operation_is_unsupported():
    with pytest.raises(Unsupported, match="layer sigmoid1: this runner has no operation 'softplus'"):
        Runner(Task(spoil("tiny_fcn", "sigmoid1", op="softplus"), batch=4))


def write_arrays(folder, network):
    inputs, targets = draw_batches(network)
    np.savez(folder / "weights.npz", **draw_weights(network))
    np.savez(folder / "batches.npz", inputs=inputs, targets=targets)
    return str(folder / "weights.npz"), str(folder / "batches.npz")


@pytest.mark.parametrize("residence", ["device", "host"])
def test_a_session_trains_and_runs(residence, tmp_path):
    network = networks.get("tiny_lstm")
    weights, batches = write_arrays(tmp_path, network)
    session = Session(Runner)
    assert session.hello()["release"] == np.__version__
    built = session.build(network=network.to_json(), batch=4)
    assert built == {"parameters": network.parameter_count, "settings": []}
    with np.load(batches) as arrays:
        samples = {name: arrays[name][:, None] for name in arrays.files}
    np.savez(tmp_path / "samples.npz", **samples)
    trained = session.train((weights, ""), (str(tmp_path / "samples.npz"), 0), 0, 3, str(tmp_path / "out.npz"), residence)
    session.load(weights)
    session.feed(batches, residence)
    run = session.run(3)

    runner, losses, wanted = ready(network), [], {}
    for step in range(1, 4):
        runner.step()
        losses.append(runner.loss())
        wanted.update({f"{step}/parameters/{name}": array for name, array in runner.parameters().items()})
    assert trained.pop("first_seconds") > 0
    assert trained == {"losses": losses, "hidden": ""}
    assert (run["steps"], run["loss"], run["stop"] >= run["start"]) == (3, losses[-1], True)
    with np.load(tmp_path / "out.npz") as arrays:
        assert set(arrays.files) == set(wanted)
        assert all(arrays[name].dtype == np.float64 and np.array_equal(arrays[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(("device", "steps"), [("cuda", [2 * 2 + 1, 2]), ("cpu", [1, 2])])
def test_a_gpu_settles_for_two_rounds_of_the_ring_before_its_first_play(device: str, steps: list[int], tmp_path):
    class Counting(Runner):
        stepped = 0

        def step(self):
            super().step()
            type(self).stepped += 1

        def feed(self, *ring):
            super().feed(*ring)
            time.sleep(0.2)

    network = networks.get("tiny_fcn")
    weights, batches = write_arrays(tmp_path, network)
    with np.load(batches) as arrays:
        np.savez(tmp_path / "samples.npz", **{name: arrays[name][:2, None] for name in arrays.files})
    session = Session(Counting)
    session.build(network=network.to_json(), batch=4)
    session.task.device = device
    losses = []
    for wanted in steps:
        before = Counting.stepped
        trained = session.train((weights, ""), (str(tmp_path / "samples.npz"), 0), 0, 1,
                                str(tmp_path / "out.npz"), "host")
        assert Counting.stepped - before == wanted
        assert (trained["first_seconds"] > 0.2) == (device == "cuda")  # the first feed counts too
        losses += trained["losses"]
    assert losses[0] == losses[1]


def test_a_session_at_rest_holds_no_network_and_builds_another(tmp_path):
    held = []

    class Watched(Runner):
        @staticmethod
        def return_memory():
            held.append([runner() is not None for runner in built])

    network, built = networks.get("tiny_fcn"), []
    weights, batches = write_arrays(tmp_path, network)
    session = Session(Watched)
    for _ in range(2):
        session.build(network=network.to_json(), batch=4)
        built.append(weakref.ref(session.runner))
        session.runner.itself = session.runner  # as frameworks' objects hold each other
        session.load(weights)
        session.feed(batches, "host")
        session.parts["FBAU"] = session.runner
        assert session.run(1)["steps"] == 1
    assert session.rest() == {}
    assert held == [[], [False], [False, False]]


def find_python36():
    """Every Python 3.6 at hand: $DLBENCH_PYTHON36, dlbench's own, PATH, pyenv. (pyenv's shim on PATH may refuse to run.)"""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob("versions/3.6.*/bin/python3.6"))
    is_36 = "import sys; assert sys.version_info[:2] == (3, 6)"
    built = store.find("reference", "1.19.5", "cpu")
    candidates = [os.environ.get("DLBENCH_PYTHON36"), built and str(built.interpreter), shutil.which("python3.6"), *installed]
    return [str(path) for path in candidates if path and run_python(path, is_36) == 0]


def run_python(interpreter, code):
    return subprocess.run([str(interpreter), "-c", code], capture_output=True, check=False).returncode


def losses_of_a_worker(interpreter, network, arrays):
    """Train five steps in a real worker process, over the wire."""
    weights, batches = arrays
    commands = [
        {"command": "build", "network": network.to_json(), "batch": 4, "dropout": False},
        {"command": "load", "weights": weights},
        {"command": "feed", "batches": batches, "residence": "host"},
        *[{"command": "run", "steps": 1}] * 5,
        {"command": "close"},
    ]
    lines = "".join(json.dumps({"id": number, **command}) + "\n" for number, command in enumerate(commands))
    worker = subprocess.run(
        [str(interpreter), "-m", "runners", "runners.reference.runner"], input=lines, capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"})
    answers = [answer for answer in map(json.loads, worker.stdout.splitlines()) if "beat" not in answer]
    assert [answer["status"] for answer in answers] == ["ok"] * 9, worker.stdout + worker.stderr
    return [answer["loss"] for answer in answers[3:8]]


def test_the_files_of_old_environments_are_python_36():
    interpreters = find_python36()
    if not interpreters:
        pytest.skip("no Python 3.6: name one in DLBENCH_PYTHON36, or `pyenv install 3.6.15`")
    for name in OLD_PYTHON_FILES:
        code = f"compile(open({str(ROOT / name)!r}, encoding='utf-8').read(), {name!r}, 'exec')"
        assert run_python(interpreters[0], code) == 0, name
    assert run_python(interpreters[0], "compile('(n := 1)', 'walrus', 'exec')") == 1


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_bottleneck", "tiny_lstm"])
def test_a_worker_under_python_36_trains_as_one_of_today(name, tmp_path):
    interpreter = next((path for path in find_python36() if run_python(path, "import numpy") == 0), None)
    if interpreter is None:
        pytest.skip("no Python 3.6 with NumPy: name one in DLBENCH_PYTHON36 or dlbench env build reference==1.19.5")
    network = networks.get(name)
    arrays = write_arrays(tmp_path, network)
    old = losses_of_a_worker(interpreter, network, arrays)
    new = losses_of_a_worker(sys.executable, network, arrays)
    assert old == pytest.approx(new, rel=1e-12)
    assert old[0] != old[-1]
