"""The judge lets rounding pass and refuses every planted fault with a reason that names it.

Each proof goes through a real worker.
"""

import math
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import networks
from harness.proof import plays, questions
from harness.proof.case import Case
from harness.proof.judge import Judge
from harness.proof.limits import Allowed, Limits
from harness.workers.files import AnswerFolder
from harness.workers.worker import Failed, Worker
from tests.conftest import TASK

REFERENCE = "runners.reference.runner"


def worded(reason: str) -> str:
    """A reason with # for what the draw of weights and the limits decide."""
    return re.sub(r"-?\b\d+\.\d+(e-\d+)?", "#", reason)


def gradients(several: str, first: str) -> str:
    return f"{several} gradients differ, from the loss backwards first {first}"


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_cnn", "tiny_resnet", "tiny_bottleneck",
                                  "tiny_lstm"])
def test_the_reference_is_the_same_as_itself(verdict, name: str):
    found = verdict("reference", name)
    parameters = networks.get(name).parameter_count
    assert (found.verdict, found.reason, found.parameters) == ("same", "", parameters)
    assert found.gradient_error == 0.0
    assert found.loss_error < 1e-15 and found.trajectory_error < 1e-11
    strength = found.strength
    assert strength.frozen == 0.0
    # The gradient of an LSTM's gate may cancel.
    assert 2e-4 < strength.rate <= strength.gradient < (0.1 if name == "tiny_lstm" else 1e-3)


def test_errors_of_single_precision_are_the_same(verdict):
    found = verdict("reference", "tiny_fcn", fault="Noisy")
    assert (found.verdict, found.reason, found.parameters) == ("same", "", 861)
    assert found.loss_error == pytest.approx(1e-7, rel=1e-3)
    assert found.gradient_error == pytest.approx(1e-6, rel=0.6)
    assert 0.01 < found.limit_share < 0.5


def test_what_is_refused_says_how_many_times_its_limit_the_error_was(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="training:pytorch.Gradients110")
    assert found.verdict == "different"
    assert found.limit_share == pytest.approx(0.1 / 2.05e-4, rel=0.1)


def test_what_a_worker_cannot_do_is_unsupported_with_its_words(verdict):
    found = verdict("reference", "tiny_fcn", precision="bf16")
    assert (found.verdict, found.reason) == (
        "unsupported", "precision 'bf16': the reference computes in float64 and judges fp32")


def test_a_worker_that_breaks_is_different_with_its_failure(verdict):
    found = verdict("reference", "tiny_fcn", fault="processes.wire:Segfault")
    assert found.verdict == "different"
    assert found.reason.startswith(
        "crashed: the worker ended during 'train' with signal SIGSEGV; log: ")
    assert math.isnan(found.gradient_error)


@pytest.mark.parametrize(("command", "asked"), [
    ("answer", {"network": "tiny_fcn"}),
    ("answer", {"network": "tiny_fcn", "fault": "processes.ranks:Runner", "devices": 2}),
    ("masks", {"network": "tiny_dropout"}),
])
def test_a_failure_of_the_reference_says_so_and_is_not_remembered(verdict, judge, monkeypatch,
                                                                  command, asked):
    class Hanging(Worker):
        def ask(self, asked, limit, **arguments):
            if asked == command:
                raise Failed("timed_out", f"no answer to '{command}' within 600 s")
            return super().ask(asked, limit, **arguments)

    monkeypatch.setattr(judge.questions, "known", {})
    with monkeypatch.context() as patched:
        patched.setattr(questions, "Worker", Hanging)
        found = verdict("reference", **asked)
    assert (found.verdict, found.reason) == (
        "different", f"timed_out: the reference: no answer to '{command}' within 600 s")
    assert found.failure == "timed_out"
    assert verdict("reference", **asked).verdict == "same"


def dead_branch(network: dict) -> None:
    """The head reads the first LSTM: the second one is not on the path to the loss."""
    network["layers"][-1]["inputs"] = ["lstm1"]


def relu_on_logits(network: dict) -> None:
    last = network["layers"][-1]
    network["layers"].append({**last, "name": "relu9", "op": "relu", "inputs": [last["name"]],
                              "attributes": {}, "parameters": {}})


def no_relu_after_addition(network: dict) -> None:
    addition = next(layer for layer in network["layers"] if layer["op"] == "add")
    relu = next(layer for layer in network["layers"] if layer["inputs"] == [addition["name"]])
    for layer in network["layers"]:
        layer["inputs"] = [addition["name"] if source == relu["name"] else source
                           for source in layer["inputs"]]


def no_shortcut(network: dict) -> None:
    """An addition that takes its branch twice: the shortcut is lost."""
    addition = next(layer for layer in network["layers"] if layer["op"] == "add")
    addition["inputs"] = addition["inputs"][:1] * 2


@pytest.mark.parametrize(("name", "plant", "several", "first"), [
    ("tiny_lstm", dead_branch, "27 of 27", "dense1.bias (dense, "),
    ("tiny_fcn", relu_on_logits, "8 of 8", "dense4.bias (dense, "),
    ("tiny_resnet", no_relu_after_addition, "23 of 23", "dense1.bias (dense, "),
    ("tiny_resnet", no_shortcut, "23 of 23", "dense1.bias (dense, "),
])
def test_another_function_is_different_in_its_loss_and_gradients(
        verdict, name: str, plant: Callable[[dict], None], several: str, first: str):
    found = verdict("reference", name, plant=plant)
    assert (found.verdict, found.parameters) == ("different", networks.get(name).parameter_count)
    assert f"; loss # for #; {gradients(several, first)}# times the right one, allowed # to #)" \
        in worded(found.reason)


MOVED = ("dense1.{} moved # times as far as it must (allowed # to #): learning rate #, not #, or "
         "another loss; ")


@pytest.mark.parametrize(("name", "fault", "reason"), [
    ("tiny_cnn", "Ceil", "different: layer max_pool1: output (4, 9, 9), the network has (4, 8, 8)"),
    ("tiny_fcn", "Swapped", "different: layer dense1: output (24,), the network has (16,)"),
    ("tiny_fcn", "TrainableInput", "873 parameters for 861"),
    ("tiny_resnet", "NoScale", MOVED.format("weight") + "7 of 23 tensors did not move, from the "
     "loss backwards first batch_norm7.scale; "),
    ("tiny_lstm", "FirstWords", MOVED.format("bias") + "12 of 27 tensors did not move, "),
    ("tiny_fcn", "Missing", "837 parameters for 861; no parameter of dense2.bias was answered"),
    ("tiny_fcn", "Transposed", "the parameter of dense2.weight has shape (16, 24), not (24, 16)"),
])
def test_a_planted_fault_is_different_and_its_reason_names_it(verdict, name, fault, reason):
    found = verdict("reference", name, fault=fault)
    assert found.verdict == "different"
    assert worded(found.reason).startswith(reason)


def test_one_number_that_is_none_is_different(verdict):
    found = verdict("reference", "tiny_fcn", fault="Nan")
    assert found.verdict == "different" and math.isnan(found.gradient_error)
    assert found.reason.endswith(gradients("1 of 8", "dense2.bias (dense, not a number)"))
    assert found.reason.startswith("1 tensors moved although their gradient is zero, most of all "
                                   "dense2.bias by nan")


MOVED = "dense4.bias moved {} times as far as it must (allowed 0.99 to 1.01): "


@pytest.mark.parametrize(("fault", "reason"), [
    ("Nesterov", MOVED.format(1.9) + "Nesterov momentum; 8 tensors have another momentum: "),
    ("LearningRate", MOVED.format(0.2) + "learning rate 0.01, not 0.05, or another loss; "),
    ("training:reference.LearningRate105",
     MOVED.format(1.05) + "learning rate 0.0525, not 0.05, or another loss; "),
    ("training:reference.Never", MOVED.format(0) + "nothing was trained; "),
    ("LabelSmoothing", MOVED.format(0.9) + "learning rate 0.045, not 0.05, or another loss; "),
    ("training:reference.HalfBatch", "loss "),
    ("WeightDecay", "6 tensors moved although their gradient is zero, most of all dense3.weight by "
     "5e-06 of its largest value: weight decay, or updates of another step; "),
])
def test_another_optimiser_or_loss_is_named_by_a_step_whose_logits_are_zero(verdict, fault, reason):
    found = verdict("reference", "tiny_fcn", fault=fault)
    assert found.verdict == "different"
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(("network", "fault", "several", "momentum"), [
    ("tiny_fcn", "NoMomentum", "8 tensors", 0.0),
    ("tiny_fcn", "training:reference.Momentum85", "8 tensors", 0.85),
    ("tiny_dropout", "training:reference.Momentum95", "1 tensors", 0.95),
])
def test_another_momentum_is_told_with_its_value(verdict, network, fault, several, momentum):
    found = verdict("reference", network, fault=fault)
    said, value, of = re.split(r"momentum: ([\d.-]+) in ", found.reason)
    assert (found.verdict, said) == ("different", f"{several} have another ")
    assert float(value) == pytest.approx(momentum, abs=2e-3)
    assert of.endswith(", not 0.9")
    assert found.trajectory_error == pytest.approx(abs(momentum / 0.9 - 1), abs=2e-3)


@pytest.mark.parametrize(("fault", "reason"), [
    ("training:reference.HalfFrozen",
     "4 of 8 tensors did not move, from the loss backwards first dense2.bias; "
     + gradients("4 of 8", "dense2.bias (dense, it did not move)")),
    ("training:reference.BiasFrozen",
     "1 of 8 tensors did not move, from the loss backwards first dense2.bias; "
     + gradients("1 of 8", "dense2.bias (dense, it did not move)")),
    ("KinkFirst", gradients("2 of 8", "dense1.bias (dense, 1.005 times the right one, allowed "
                                      "0.99978 to 1.0002)")),
])
def test_tensors_that_move_otherwise_are_counted_and_named(verdict, fault, reason):
    found = verdict("reference", "tiny_fcn", fault=fault)
    assert (found.verdict, found.reason) == ("different", reason)


def test_a_fault_that_begins_later_is_seen_in_the_proof_after_the_windows(worker_for, judge):
    with worker_for("reference", "training:reference.Stops20", {}) as worker:
        network = networks.get("tiny_fcn")
        assert judge.judge(worker, network, TASK).verdict == "same"
        found = judge.judge(worker, network, TASK, between=20)
    assert found.verdict == "different" and "nothing was trained" in found.reason


@pytest.mark.parametrize(("fault", "precision"), [("Kink", "fp32"), ("KinkBf16", "bf16")])
def test_a_kink_that_turned_on_one_draw_is_the_same_on_the_next(verdict, fault, precision):
    found = verdict("reference", "tiny_cnn", fault=fault, precision=precision)
    assert (found.verdict, found.reason, found.gradient_error) == ("same", "", 0.0)


def test_what_looks_like_a_kink_on_every_draw_is_a_fault(verdict):
    found = verdict("reference", "tiny_cnn", fault="KinkAlways")
    assert found.verdict == "different"
    assert worded(found.reason) == gradients(
        "6 of 8", "conv2d3.bias (conv2d, # times the right one, allowed # to #)")
    assert found.gradient_error == pytest.approx(0.5)


@pytest.mark.parametrize(("fault", "draws"), [("KinkAlways", 3), ("Kink", 2), ("NoMomentum", 1),
                                              ("Missing", 1)])
def test_only_what_rounding_could_explain_is_drawn_anew(verdict, judge, monkeypatch, fault, draws):
    asked, question = [], judge.questions.question
    monkeypatch.setattr(judge.questions, "question",
                        lambda *arguments: asked.append(arguments[-1]) or question(*arguments))
    verdict("reference", "tiny_fcn", fault=fault)
    assert asked == list(range(draws))


@pytest.mark.parametrize(("fault", "draws"), [("", [0, 0]), ("Kink", [0, 1, 1])])
def test_a_second_proof_begins_with_the_draw_that_passed(judge, worker_for, monkeypatch, fault, draws):
    asked, question = [], judge.questions.question
    monkeypatch.setattr(judge.questions, "question",
                        lambda *arguments: asked.append(arguments[-1]) or question(*arguments))
    with worker_for("reference", fault, {}) as worker:
        assert judge.judge(worker, networks.get("tiny_cnn"), TASK, between=1).verdict == "same"
    assert asked == draws


def test_each_draw_has_weights_and_samples_of_its_own(judge):
    network = networks.get("tiny_resnet")
    drawn = [judge.questions.question(network, 2, 1, draw) for draw in (0, 1)]
    for kind in (questions.PLAIN, questions.SMOOTH, "samples"):
        one, other = (np.load(question.file(kind)) for question in drawn)
        assert not any(np.array_equal(one[name], other[name]) for name in one.files)


def test_the_head_alone_is_zero_in_a_calibrated_draw(judge):
    drawn = judge.questions.question(networks.get("tiny_fcn"), 2, 1, 0)
    plain, zero = (np.load(drawn.file(kind)) for kind in (questions.PLAIN, questions.CALIBRATED))
    zeros = [name for name in zero.files if not zero[name].any()]
    assert zeros == ["dense4.weight", "dense4.bias"]
    assert all(np.array_equal(zero[name], plain[name]) for name in set(zero.files) - set(zeros))
    assert not any(np.array_equal(plain[name], zero[name]) for name in zeros)


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_lstm"])
def test_a_calibrated_gradient_of_the_head_is_what_the_reference_finds(judge, name):
    drawn = judge.questions.question(networks.get(name), 2, 1, 0)
    bias = f"{drawn.network.layers[-1].name}.bias"
    loss, answer = judge.questions.answer(drawn, questions.CALIBRATED)
    assert loss == pytest.approx(math.log(drawn.network.classes), rel=1e-12)
    assert np.allclose(answer[f"gradient/{bias}"], questions.bias_gradient(drawn), atol=1e-15)
    assert set(answer) == {f"gradient/{questions.head_of(drawn.network).name}.{parameter}"
                           for parameter in ("weight", "bias")}


@pytest.mark.parametrize("name", ["tiny_fcn", "tiny_resnet", "tiny_dropout"])
def test_each_play_begins_with_the_batch_that_comes_next(worker_for, tmp_path, monkeypatch, name):
    asked, train = [], plays.Trainer.train

    def noted(self, weights, start, steps, *others, **more):
        asked.append((start, steps))
        return train(self, weights, start, steps, *others, **more)

    monkeypatch.setattr(plays.Trainer, "train", noted)
    judge = Judge(tmp_path, samples=2, steps=3, seed=1, limit=600)
    with worker_for("reference", "", {}) as worker:
        assert judge.judge(worker, networks.get(name), TASK).verdict == "same"
    following = [0, *((start + steps) % questions.BATCHES for start, steps in asked)]
    assert [start for start, _ in asked] == following[:-1]


@pytest.mark.parametrize(("device", "most"), [("cpu", 1), ("cuda", 2)])
def test_on_a_cpu_workers_train_one_at_a_time(tmp_path, device, most):
    """On a GPU two may meet: the barrier breaks if they cannot, or if they do on a CPU."""
    network = networks.get("tiny_fcn")
    judge, inside, seen = Judge(tmp_path, samples=2, steps=2, seed=1, limit=600), [], []
    meeting = threading.Barrier(2)

    class Together:
        def ask(self, *asked, **arguments):
            inside.append(self)
            with suppress(threading.BrokenBarrierError):
                meeting.wait(timeout=1 if device == "cpu" else 60)
            seen.append(len(inside))
            inside.remove(self)
            raise Failed("crashed", "enough")

    case = Case(judge.questions.question(network, 2, 1, 0), judge.questions, judge.limits,
                {**TASK, "device": device}, 2)

    def train(worker: Together) -> None:
        with AnswerFolder(tmp_path) as folder, suppress(Failed):
            plays.Trainer(worker, case, "device", 600, folder).train(None, 0, 1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, [Together(), Together()]))
    assert max(seen) == most


@pytest.mark.parametrize(("batch", "samples"), [(1, 1), (2, 2), (3, 1), (4, 2), (64, 2), (65, 1)])
def test_a_batch_repeats_the_most_samples_that_divide_it(batch, samples):
    assert questions.samples_of(batch, 2) == samples
    assert questions.samples_of(15, 4) == 3


@pytest.mark.parametrize(("network", "batch"), [("tiny_lstm", 2), ("tiny_resnet", 6)])
def test_the_reference_answers_for_any_batch_that_repeats_its_samples(worker_for, judge, network,
                                                                      batch):
    with worker_for("reference", "", {}) as worker:
        found = judge.judge(worker, networks.get(network), TASK, batch)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.gradient_error < 1e-6


def allowing(judge: Judge, monkeypatch, names: set[str], limit: float) -> None:
    """Widen the limits of some tensors, as many kinks in few bits do; standing still is allowed."""
    monkeypatch.setattr("harness.proof.moves.SURE_TO_MOVE", 0.0)
    of = judge.limits.of

    def wide(*asked) -> Limits:
        limits = of(*asked)
        return Limits(limits.loss, {name: Allowed(limit, limit, limit) if name in names else kept
                                    for name, kept in limits.tensors.items()})

    monkeypatch.setattr(judge.limits, "of", wide)


def test_a_tensor_that_cannot_be_seen_counts_as_frozen(verdict, judge, monkeypatch):
    allowing(judge, monkeypatch, {"dense1.weight", "dense1.bias"}, 2.0)
    found = verdict("reference", "tiny_fcn", fault="KinkFirst")
    size = 1 / networks.get("tiny_fcn").parameter_count
    shapes = networks.get("tiny_fcn").parameter_shapes
    hidden = sum(math.prod(shapes[name]) for name in ("dense1.weight", "dense1.bias"))
    assert found.verdict == "same"
    assert found.strength.frozen == pytest.approx(hidden * size)
    assert found.strength.gradient > 2 and found.strength.rate < 1e-3


def test_a_proof_whose_every_limit_is_wide_still_knows_the_learning_rate(verdict, judge,
                                                                         monkeypatch):
    allowing(judge, monkeypatch, set(networks.get("tiny_fcn").parameter_shapes), 2.0)
    found = verdict("reference", "tiny_fcn", fault="training:reference.Never")
    assert found.verdict == "different" and "nothing was trained" in found.reason
    assert found.strength.frozen == 1.0
    assert found.strength.rate == pytest.approx(0.01, rel=0.01)


def test_references_of_different_networks_run_side_by_side_and_one_network_has_one(monkeypatch,
                                                                                   tmp_path):
    # Breaks where one reference waits for the other to end.
    meeting, found = threading.Barrier(2, timeout=60), Counter()
    reference = questions.Questions._reference

    @contextmanager
    def counted(self, question, kind):
        found[question.network.name, kind] += 1
        with reference(self, question, kind) as worker:
            if kind == questions.PLAIN:
                meeting.wait()
            yield worker

    monkeypatch.setattr(questions.Questions, "_reference", counted)
    judge = Judge(tmp_path, samples=2, steps=2, seed=1, limit=600)

    def verdict(name: str) -> str:
        with Worker(sys.executable, REFERENCE, tmp_path / "worker.log") as worker:
            return judge.judge(worker, networks.get(name), TASK).verdict

    with ThreadPoolExecutor(3) as pool:
        asked = ["tiny_fcn", "tiny_lstm", "tiny_fcn"]
        assert list(pool.map(verdict, asked)) == ["same"] * 3
    assert found == {(name, kind): 1 for name in ("tiny_fcn", "tiny_lstm")
                     for kind in (questions.PLAIN, questions.CALIBRATED)}


def test_a_prepared_judge_asks_the_reference_no_more(monkeypatch, tmp_path, worker_for):
    judge = Judge(tmp_path, samples=2, steps=2, seed=1, limit=600)
    for name in ("tiny_fcn", "tiny_inception"):
        judge.prepare(networks.get(name), 4, 1, "fp32")
    monkeypatch.delattr(questions.Questions, "_reference")
    with worker_for("reference", "", {}) as worker:
        for name in ("tiny_fcn", "tiny_inception"):
            assert judge.judge(worker, networks.get(name), TASK).verdict == "same"


def test_a_proof_leaves_no_answers_behind(verdict, judge):
    verdict("reference", "tiny_lstm")
    verdict("reference", "tiny_fcn", fault="Missing")
    # Those of a question are proof-<network>-s<samples>-<draw>.<kind>.npz.
    assert not [file.name for file in judge.questions.folder.glob("*.npz")
                if not re.match(r"proof-\w+(-x\d)?-s\d-\d\.", file.name)]
