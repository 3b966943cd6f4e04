"""The proof refuses runners that train otherwise, in fp32 and bf16, each with a reason that names it.

`scripts/proof_matrix.py` prints the same for any framework, network, precision and device.
"""

import pytest

import networks
from harness.proof import copies
from harness.proof.verdict import Verdict
from tests.conftest import TASK, needs_avx512
from tests.faults import training
from tests.slow import slow

LATE = 24  # steps between two proofs; late faults begin after step 20
REPEATED = 64  # samples of a batch, so that dropout's masks average out
NOTHING = "nothing was trained"
STOOD_STILL = "did not move, from the loss backwards first "
STOOD = "it did not move"
DECAY = "tensors moved although their gradient is zero"
MOMENTUM = "another momentum: "

FAULTS = [
    ("Never", "tiny_fcn", NOTHING),
    ("UpdatesEvery4", "tiny_fcn", f"8 of 8 tensors {STOOD_STILL}"),
    ("Skips4", "tiny_fcn", NOTHING),
    ("HalfBatch", "tiny_fcn", "loss 1.35"),
    ("LargeHalfBatch", "tiny_fcn", "loss 1.35"),
    ("LargeNever", "tiny_fcn", NOTHING),
    ("LargeMomentum0", "tiny_fcn", MOMENTUM + "0 in "),
    ("LargeLearningRate70", "tiny_fcn", "moved 0.7"),
    ("LargeHalfFrozen", "tiny_fcn", STOOD),
    ("Gradients15", "tiny_fcn", "moved 0.15"),
    ("Gradients50", "tiny_fcn", "moved 0.5"),
    ("Gradients90", "tiny_fcn", "moved 0.9"),
    ("Gradients110", "tiny_fcn", "moved 1.1"),
    ("Gradients185", "tiny_fcn", "moved 1.85"),
    ("LearningRate95", "tiny_fcn", "moved 0.95"),
    ("LearningRate105", "tiny_fcn", "moved 1.05"),
    ("Momentum0", "tiny_fcn", MOMENTUM + "0 in "),
    ("Momentum85", "tiny_fcn", MOMENTUM + "0.85 in "),
    ("Momentum95", "tiny_fcn", MOMENTUM + "0.95 in "),
    ("Nesterov", "tiny_fcn", "Nesterov momentum"),
    ("MomentumBits1", "tiny_fcn", "8 tensors have a momentum that does not follow the move before"),
    ("MomentumBits8", "tiny_fcn", "a momentum that does not follow the move before"),
    ("WeightDecay", "tiny_fcn", DECAY),
    ("HalfFrozen", "tiny_fcn", "4 of 8 gradients differ, from the loss backwards first "
                               f"dense2.bias (dense, {STOOD})"),
    ("BiasFrozen", "tiny_fcn", f"1 of 8 gradients differ, from the loss backwards first "
                               f"dense2.bias (dense, {STOOD})"),
    ("SumForMean", "tiny_fcn", "moved 4"),
    ("LabelSmoothing", "tiny_fcn", "loss"),
    ("GateFrozen2", "tiny_lstm", f"3 of 27 tensors {STOOD_STILL}"),
    ("GateFrozen0", "tiny_lstm", f"3 of 27 tensors {STOOD_STILL}lstm1.bias.i"),
    ("Truncated", "tiny_lstm", "from the loss backwards first lstm2.bias"),
    ("GatesSwapped", "tiny_lstm", "gradients differ"),
    ("PaddingAside", "tiny_cnn", "loss"),
    ("NormFrozen", "tiny_resnet", f"first batch_norm4.shift (batch_norm, {STOOD})"),
    ("Running80", "tiny_resnet", "14 running statistics differ, first batch_norm1.mean ("),
    ("Running99", "tiny_resnet", "14 running statistics differ, first batch_norm1.mean (0."),
    ("Running100", "tiny_resnet", f"first batch_norm1.mean ({STOOD})"),
]
BEGIN_LATE = [
    ("Stops20", NOTHING),
    ("HalfBatch20", "loss 1.35"),
    ("Zeros20", "loss"),
    ("OneBatch20", "dense4.bias moved "),
    ("NoMomentumAfter20", MOMENTUM + "0 in "),
]
ELSEWHERE = [
    ("tensorflow", "fp32", "WeightDecay", "tiny_fcn", DECAY),
    ("tensorflow", "fp32", "LearningRate105", "tiny_fcn", "moved 1.05"),
    ("tensorflow", "fp32", "HalfFrozen", "tiny_fcn", STOOD),
    ("tensorflow", "fp32", "PaddingAside", "tiny_cnn", "loss"),
    ("tensorflow", "bf16", "Never", "tiny_fcn", NOTHING),
    ("tensorflow", "bf16", "Momentum85", "tiny_fcn", MOMENTUM + "0.85 in "),
    ("tensorflow", "bf16", "LabelSmoothing", "tiny_fcn", "loss"),
    ("jax", "fp32", "Nesterov", "tiny_fcn", "Nesterov momentum"),
    ("jax", "fp32", "HalfBatch", "tiny_fcn", "loss 1.35"),
    ("jax", "fp32", "Truncated", "tiny_lstm", "from the loss backwards first lstm2.bias"),
    ("jax", "bf16", "BiasFrozen", "tiny_fcn", STOOD),
    ("jax", "bf16", "Gradients90", "tiny_fcn", "moved 0.9"),
    ("jax", "bf16", "WeightDecay", "tiny_fcn", DECAY),
]


@pytest.fixture
def proven(judge, worker_for):
    """Return the verdict on a fault: `proven("pytorch", "bf16", "Never", "tiny_fcn")`."""

    def ask(framework, precision, fault, name, between=0, batch=4) -> Verdict:
        task, network = {**TASK, "precision": precision}, networks.get(name)
        with worker_for(framework, f"training:{framework}.{fault}", task) as worker:
            return judge.judge(worker, network, task, batch, between)

    return ask


@pytest.mark.parametrize(("fault", "network", "words", "precision"), [
    pytest.param(*row, precision, marks=[needs_avx512] if (row[1], precision) == ("tiny_lstm", "bf16") else [])
    for row in FAULTS for precision in ("fp32", "bf16")])
def test_a_fault_is_refused(proven, fault: str, network: str, words: str, precision: str):
    assert_refused(proven("pytorch", precision, fault, network), words)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("fault", "words"), BEGIN_LATE)
def test_a_fault_that_begins_late_is_refused_by_the_proof_after(proven, fault: str, words: str,
                                                                precision: str):
    assert proven("pytorch", precision, fault, "tiny_fcn").verdict == "same"
    assert_refused(proven("pytorch", precision, fault, "tiny_fcn", between=LATE), words)


@pytest.mark.parametrize(("framework", "precision", "fault", "network", "words"), ELSEWHERE)
def test_a_fault_is_refused_in_other_frameworks(proven, framework: str, precision: str, fault: str,
                                                network: str, words: str):
    assert_refused(proven(framework, precision, fault, network), words)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("fault", ["HalfFrozen", "BiasFrozen"])
def test_frozen_tensors_beside_dropout_are_refused_at_a_timed_batch(proven, fault: str,
                                                                    precision: str):
    assert_refused(proven("pytorch", precision, fault, "tiny_dropout", batch=REPEATED), STOOD)


def test_a_step_skipped_or_repeated_beside_dropout_is_refused(proven):
    """Without the other steps' gradients, the head's bias alone shows them."""
    for fault in ("Skips4", "Momentum85", "OneBatch20"):
        found = proven("pytorch", "bf16", fault, "tiny_dropout", between=LATE)
        assert_refused(found, "dense2.bias")


def test_an_epsilon_of_batch_norm_is_refused_in_fp32_and_beyond_the_strength_of_bf16(proven):
    assert_refused(proven("pytorch", "fp32", "Epsilon", "tiny_resnet"), "gradients differ")
    passed = proven("pytorch", "bf16", "Epsilon", "tiny_resnet")
    assert passed.verdict == "same" and passed.strength.gradient > 0.01


@slow
def test_a_rank_that_misses_one_update_of_eight_shows_in_the_copies(judge, worker_for):
    """They are compared after the windows; a proof loads all ranks anew."""
    task = {**TASK, "devices": 2, "strategy": "ddp"}
    network = networks.get("tiny_fcn")
    with worker_for("pytorch", "training:pytorch.RankMisses8", task) as worker:
        built = worker.ask("build", 300, network=network.to_json(), batch=4, dropout=True, **task)
        assert judge.prove(worker, network, task, 4, built["parameters"]).verdict == "same"
        assert not copies.compare(worker, network, "ddp", 2, 300).fault
        worker.ask("run", 300, steps=12)
        assert copies.compare(worker, network, "ddp", 2, 300).fault.startswith("the devices' parameters have come")


def test_a_runner_without_a_fault_is_the_same(proven):
    """The negative control: the same runner, told of the batch's own learning rate."""
    for name in ("tiny_fcn", "tiny_resnet"):
        assert proven("pytorch", "bf16", "LearningRate100", name, between=LATE).verdict == "same"


@needs_avx512
def test_an_lstm_without_a_fault_is_the_same(proven):
    assert proven("pytorch", "bf16", "LearningRate100", "tiny_lstm", between=LATE).verdict == "same"


def test_the_lists_of_faults_are_whole():
    here = {fault for fault, *_ in FAULTS + BEGIN_LATE} | {"Epsilon"}
    # Tiny networks do not show it.
    assert set(training.FAULTS) - here == {"Dropout40"}


def assert_refused(found: Verdict, words: str) -> None:
    assert (found.verdict, found.failure) == ("different", "") and words in found.reason, found
