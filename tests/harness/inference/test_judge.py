"""The proof of inference: right engines pass, and each planted fault is named."""

import hashlib
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import networks
from harness.data import arrays, data_sets
from harness.data.inputs import Inputs
from harness.inference.judge import InferenceJudge, distances, unit_of
from harness.inference.reference import Asked, Reference
from harness.workers.alive import LiveWorkers
from harness.workers.worker import Failed, Worker
from runners import int8
from runners.reference.inference import errors_of
from tests.ready import inference_verdict

NETWORK = "tiny_resnet"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    reference = Reference(tmp_path_factory.mktemp("reference"), 1, 2, 300, LiveWorkers())
    return InferenceJudge(reference, 300)


@pytest.fixture
def verdict(judge, tmp_path):
    def ask(engine, network=NETWORK, precision="fp32", batch=4):
        with Worker(sys.executable, f"tests.faults.engines:{engine}", tmp_path / "log") as worker:
            return inference_verdict(judge, worker, network, batch, precision=precision)

    return ask


@pytest.mark.parametrize("network", networks.names(small=True))
def test_a_right_engine_is_the_same(verdict, network):
    found = verdict("Good", network)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.output_error < 5e-6 < found.output_limit < 1e-3


def test_a_right_engine_in_bf16_is_the_same(verdict):
    found = verdict("GoodBf16", precision="bf16")
    assert found.verdict == "same"
    assert 1e-3 < found.output_error < found.output_limit < 0.5


@pytest.mark.parametrize(("fault", "says"), [
    ("Epsilon", "outputs are off by"), ("BatchStatistics", "outputs are off by"),
    ("NoBias", "outputs are off by"), ("OtherWeights", "outputs are off by"),
    ("Cached", "outputs are off by"), ("HalfTheBatch", "outputs are off by"),
    ("SilentBf16", "so large an error is that of bf16"),
    ("SaysBf16", "the engine says that it computes in bf16, fp32 was asked for"),
    ("FewerParameters", "2,068 parameters for 2,069")])
def test_a_fault_is_different_and_named(verdict, fault, says):
    found = verdict(fault)
    assert found.verdict == "different" and says in found.reason


@pytest.mark.parametrize("fault", ["BatchStatistics", "OtherWeights", "Cached", "HalfTheBatch"])
def test_large_faults_show_in_bf16_too(verdict, fault):
    # Exact arithmetic: the fault alone is far beyond what bf16 rounds.
    assert "outputs are off by" in verdict(fault, precision="bf16").reason


class CoarseReference:
    """Outputs of four samples that correct rounding moves by 0.3 of how they differ."""

    rows = 4, 1000

    def __init__(self, along=0.01):
        self.exact = [np.random.default_rng(seed).standard_normal(self.rows) for seed in (1, 2)]
        self.unit = unit_of(np.concatenate(self.exact))
        self.along = along

    def tests(self, asked):
        return None

    def outputs(self, asked, file):
        return self.exact

    def rounding(self, asked, moves=False):
        return 0.3

    def rounding_along(self, asked):
        return self.along

    def noise(self, seed, size=0.3):
        drawn = np.random.default_rng(10 + seed).standard_normal(self.rows)
        return size * self.unit * drawn / np.sqrt(np.square(drawn).sum(axis=1, keepdims=True))


def coarse_verdict(answer, along=0.01):
    reference = CoarseReference(along)
    calls = SimpleNamespace(asked=Asked(networks.get(NETWORK), 4, "bf16"), file=None)
    calls.found = [(batch, answer(reference, batch)) for batch in (0, 1, 0)]
    return InferenceJudge(reference, 300).compare(calls)


def test_rounding_as_large_as_the_differences_is_proven_along_them():
    found = coarse_verdict(lambda reference, batch: reference.exact[batch] + reference.noise(batch))
    assert (found.verdict, found.reason, found.output_limit) == ("same", "", 0.05)
    assert found.output_error < 0.03


@pytest.mark.parametrize(("fault", "along"), [
    # The mean of all samples, whatever the input; the outputs of the other batch; a scale.
    (lambda reference, batch: np.concatenate(reference.exact).mean(axis=0) + reference.noise(batch), 1),
    (lambda reference, batch: 0.3 * reference.exact[1 - batch] + reference.noise(batch), 1),
    (lambda reference, batch: 1.1 * reference.exact[batch] + reference.noise(batch), 0.1)])
def test_faults_within_the_noise_of_rounding_show_along_the_differences(fault, along):
    found = coarse_verdict(fault)
    assert found.verdict == "different" and found.output_limit == 0.05
    assert found.output_error == pytest.approx(along, rel=0.1)
    assert found.reason.startswith("along the differences between inputs outputs are off by ")


def test_one_call_of_several_that_answers_for_other_inputs_shows_along_the_differences():
    # The first call's distance is allowed, and the last one has its inputs again.
    late = iter([0.9, 1, 1])

    def answer(reference, batch):
        share = next(late)
        return share * reference.exact[batch if share == 1 else 1 - batch] + reference.noise(batch, 0.1)

    found = coarse_verdict(answer)
    assert found.reason.startswith("along the differences between inputs")


def test_noise_far_beyond_rounding_is_off_whatever_its_direction():
    found = coarse_verdict(lambda reference, batch: reference.exact[batch] + reference.noise(batch, 2))
    assert found.reason.startswith("outputs are off by 2 ")


def test_a_proof_that_rounding_blinds_along_the_differences_too_proves_nothing():
    found = coarse_verdict(lambda reference, batch: reference.exact[batch] + reference.noise(batch), 0.11)
    assert found.reason.startswith("unproven: outputs may be off by 0.55")


def test_the_reference_measures_rounding_along_the_differences(judge):
    asked = Asked(networks.get(NETWORK), 4, "bf16")
    assert 0 < judge.reference.rounding_along(asked) < judge.reference.rounding(asked) < 0.1


def test_a_finer_precision_than_declared_is_refused(verdict):
    assert "computed in a finer precision" in verdict("Good", precision="bf16").reason


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_outputs_that_are_no_numbers_are_off(judge, monkeypatch, precision):
    asked = Asked(networks.get(NETWORK), 4, precision, "both_stored" if precision == "int8" else "")
    calls = SimpleNamespace(asked=asked, file=judge.reference.proof_inputs(asked))
    calls.found = [(0, np.full_like(judge.reference.outputs(asked, calls.file)[0], np.nan))]
    assert judge.compare(calls).reason.startswith("outputs are off by nan")


def test_outputs_of_another_shape_are_no_answer(verdict):
    with pytest.raises(Failed, match=r"protocol: outputs\.npz: outputs: came float32"):
        verdict("ShortOfCalls")


def test_running_statistics_are_drawn_once_and_lie_away_from_the_moments(judge):
    network = networks.get(NETWORK)
    file = judge.reference.trained(network)
    found = arrays.mapped(file)
    weights = arrays.away_from_kinks(network, arrays.draw_weights(network, 1))
    assert all(np.array_equal(found[name], weights[name]) for name in weights)
    drawn = {name for name in found if name not in weights}
    norms = [layer.name for layer in network.layers if layer.op == "batch_norm"]
    assert drawn == {f"{name}.{kind}" for name in norms for kind in ("mean", "variance")}
    assert judge.reference.trained(network) == file
    moments = arrays.mapped(file.parent / f"moments-{NETWORK}.npz")
    apart = [np.abs(found[name] / moments[name] - 1).mean() for name in drawn if "var" in name]
    assert 0.1 < np.mean(apart) < 0.5


def test_scales_of_int8_come_from_the_data_of_the_trial(tmp_path):
    network = networks.get("tiny_cnn")

    def real(network, batch, name):
        assert name == "cifar10"
        drawn, targets = arrays.synthetic_batches(network, batch, 2, 1)
        arrays.save_batches(tmp_path / "real.npz", 100 * drawn, targets)
        return tmp_path / "real.npz"

    reference = Reference(tmp_path, 1, 2, 300, LiveWorkers(), real)
    drawn, from_real = (arrays.mapped(reference.weights(Asked(network, 4, "int8", "both_stored", data)))
                        for data in ("", "cifar10"))
    scale, zero = drawn["input.quantised"]
    assert 30 < from_real["input.quantised"][0] / scale < 300 and zero == from_real["input.quantised"][1] == 128
    added = {name for name in drawn if name.endswith(".quantised")}
    assert set(drawn) - added == set(arrays.mapped(reference.trained(network)))


def test_scales_of_a_language_model_come_from_the_words_of_a_text(tmp_path, monkeypatch):
    text = b" a b c c b b a a\n" * 30
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "train.txt").write_bytes(text)
    file = {"name": "train.txt", "url": "file:///nowhere", "sha256": hashlib.sha256(text).hexdigest()}
    parts = [{"name": "training", "files": [file]}]
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"ptb": {"title": "PTB", "unit": "words", "parts": parts}}))
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path))
    monkeypatch.setattr(data_sets, "CONFIG", tmp_path / "data.yaml")
    network = replace(networks.get("tiny_gpt"), data_set="ptb")
    reference = Reference(tmp_path, 1, 2, 300, LiveWorkers(), Inputs(tmp_path, 1).batches)
    drawn, from_text = (arrays.mapped(reference.weights(Asked(network, 4, "int8", "both_stored", data)))
                        for data in ("", "ptb"))
    # a, b, c, the end of a line, and the rare <unk>.
    assert arrays.mapped(tmp_path / "range-inputs-tiny_gpt-ptb.npz")["inputs"].max() < 5
    apart = [from_text[name][0] / drawn[name][0] for name in drawn if name.endswith(".quantised")]
    assert len(apart) == 9 and all(0.3 < each < 1.5 and each != 1 for each in apart)


@pytest.mark.parametrize(("form", "left"), [("both_stored", set()), ("first_added", {"batch_norm3", "batch_norm5", "batch_norm7"})])
def test_a_summand_that_is_added_first_has_no_scale(judge, form, left):
    file = arrays.mapped(judge.reference.weights(Asked(networks.get(NETWORK), 4, "int8", form)))
    every = {name for name, owner in int8.tensors(networks.get(NETWORK).to_json()).items() if name == owner}
    assert {name.partition(".")[0] for name in file if name.endswith(".quantised")} == every - left


def test_zero_is_a_level_of_every_scale():
    assert int8.scale_of(0.0, 25.5) == (np.float32(0.1), 0)
    scale, zero = int8.scale_of(-1.28, 0.5)
    assert (float(scale), zero) == (pytest.approx(0.01), 128)
    x = np.array([[-1.28, 0.0, 0.004, 0.5, 9.0]])
    assert int8.rounded_to_levels(x, scale, zero)[0].tolist() == pytest.approx([-1.28, 0, 0, 0.5, 1.27])
    moved = int8.rounded_to_levels(x, scale, zero, moves=True)[0]
    assert moved.tolist() == pytest.approx([-1.28, 0, 0.01, 0.5, 1.27])


def test_the_compared_rows_are_of_every_batch_and_always_the_same(judge):
    file = judge.reference.proof_inputs(Asked(networks.get(NETWORK), 4, "fp32"))
    rows = judge.reference.rows(file)
    assert [len(set(each)) for each in rows] == [2, 2]
    judge.reference.known.clear()
    assert judge.reference.rows(file) == rows


def test_a_few_outputs_have_the_unit_of_many():
    exact = np.random.default_rng(1).standard_normal((400, 1000))
    pairs = [unit_of(pair) for pair in np.split(exact, 200)]
    assert np.mean(pairs) == pytest.approx(unit_of(exact), rel=0.01)
    assert errors_of(exact[:2] + 1, exact[:2])[0] == pytest.approx(np.sqrt(1000) / pairs[0])


def test_distances_are_in_units_of_how_outputs_differ():
    exact = np.array([[1.0, 10.0], [3.0, 10.0]])
    assert unit_of(exact) == pytest.approx(np.sqrt(2))
    assert distances(np.array([[1.0, 10.5], [3.0, 10.0]]), exact).tolist() == [0.5, 0.0]
