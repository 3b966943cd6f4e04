"""PyTorch's strategies average gradients rightly on two to four CPUs; what the lossy ones lose is bounded and comes later.

The errors are those of tests.faults.pytorch.aggregations, against known gradients of Gaussian numbers.
"""

import numpy as np
import pytest
from pydantic import ConfigDict

import networks
from analysis.strategies import table
from harness.environments import recipes
from harness.workers import answers
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Unsupported
from tests.ready import to_train
from tests.slow import slow, slow_but

PARALLEL = recipes.load("pytorch").parallel
STRATEGIES = [name for name in PARALLEL.strategies["cpu"] if not table.of(name).divides]
EXACT = [strategy for strategy in STRATEGIES if not table.of(strategy).lossy]


class Aggregated(answers.Answer):
    """What the worker of these tests alone answers."""

    model_config = ConfigDict(extra="allow")


@pytest.fixture(scope="module", params=slow_but([3], [2, 3, 4]))
def aggregate(request, started):
    """Aggregate known gradients; every rank must answer the same, the bits of its gradients among that."""
    known = {**answers.ANSWERS, "aggregate": Aggregated}
    with pytest.MonkeyPatch.context() as patch, started("tests.faults.pytorch.aggregations", request.param) as worker:
        patch.setattr(answers, "ANSWERS", known)
        yield lambda strategy, **how: worker.ask("aggregate", 120, strategy=strategy, ranks=request.param, **how)


@pytest.fixture
def runner(worker_for):
    """Two ranks of PyTorch's runner."""
    with worker_for("pytorch", "", {"devices": 2}) as worker:
        worker.ask("hello", 300)
        yield worker


@pytest.fixture(scope="module")
def started(interpreter_of, tmp_path_factory):
    def start(module, ranks):
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        log = tmp_path_factory.mktemp("ranks") / "log"
        worker = Ranks(Launch(PARALLEL, ranks), interpreter_of("pytorch"), module, log, variables)
        worker.ask("hello", 300)
        return worker

    return start


@pytest.mark.parametrize("strategy", EXACT)
def test_an_exact_strategy_answers_the_mean(aggregate, strategy):
    assert aggregate(strategy, steps=3)["error"] < 2e-7  # three roundings of float32


def test_bf16_rounds_every_value_and_sum_to_eight_bits(aggregate):
    error = aggregate("bf16_compress", steps=3)["error"]
    assert 1e-3 < error < 4 * 2.0**-8


def test_one_bit_stays_within_the_norm_of_what_it_rounds(aggregate):
    found = aggregate("one_bit", steps=1)
    # Of Gaussian numbers a sign and two means keep 2 / pi of the square: each round loses 0.6, of n gradients and of their mean.
    assert 0.6 < found["error"] < 0.85
    assert found["drift"] == found["error"]


def test_what_one_bit_has_lost_is_what_it_keeps_to_the_last_rounding(aggregate):
    assert aggregate("one_bit", steps=20)["unexplained"] < 1e-6


def test_the_error_of_one_bits_sum_does_not_grow_with_the_steps(aggregate):
    assert 0.9 < aggregate("one_bit", steps=5)["drift"] < 1.2
    assert 0.9 < aggregate("one_bit", steps=80)["drift"] < 1.2


@pytest.mark.parametrize(("strategy", "kept", "lost"), [("one_bit", 0.13, 0.7), ("power_sgd", 0.25, 0.8)])
def test_without_error_feedback_a_constant_gradient_never_arrives(aggregate, strategy, kept, lost):
    """The mean of 80 answers to one gradient comes near it with feedback; without, the same part is lost each time."""
    assert aggregate(strategy, steps=80, constant=True)["drift"] / 80 < kept
    assert aggregate(strategy, steps=80, constant=True, forget=True)["drift"] / 80 > lost


def test_power_sgd_sends_its_first_two_steps_whole_and_then_less(aggregate):
    assert aggregate("power_sgd", steps=2)["error"] < 2e-7
    assert 0.5 < aggregate("power_sgd", steps=3)["error"] < 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_is_the_same_with_any_strategy(judge, runner, strategy):
    found = judge.judge(runner, networks.get("tiny_resnet"), task_of(strategy))
    assert (found.verdict, found.reason) == ("same", "")
    # One bit keeps sums alone, bf16 eight bits; PowerSGD sends its first steps whole.
    least, most = {"one_bit": (np.nan, np.nan), "bf16_compress": (1e-3, 1e-2)}.get(strategy, (0, 1e-4))
    assert np.isnan(least) == np.isnan(found.gradient_error)
    assert not (found.gradient_error < least or found.gradient_error > most)


# DDP alone, an aggregation beside it, and a hook of DDP (`bf16_compress` is another).
@slow
@pytest.mark.parametrize(("strategy", "network"), [
    ("ddp", "tiny_fcn"), ("one_bit", "tiny_fcn"), ("power_sgd", "tiny_fcn")])
def test_a_tuned_step_is_the_same(judge, runner, strategy, network):
    found = judge.judge(runner, networks.get(network), {**task_of(strategy), "tuning": "tuned"})
    assert (found.verdict, found.reason) == ("same", "")
    assert strategy == "one_bit" or found.gradient_error < 1e-4


@slow
@pytest.mark.parametrize(("network", "tuning", "precision"), [
    ("tiny_gpt", "tuned", "fp32"), ("tiny_resnet", "tuned", "bf16"), ("tiny_dropout", "compiled", "fp32")])
def test_a_compiled_step_in_pieces_is_the_same(verdict, network, tuning, precision):
    found = verdict("pytorch", network, fault="pytorch.ranks:Pieces", devices=2, strategy="ddp", tuning=tuning,
                    precision=precision)
    assert (found.verdict, found.reason) == ("same", "")


@pytest.mark.parametrize("strategy", ["power_sgd", "bf16_compress"])
def test_several_buckets_on_cpus_do_not_meet_one_another(verdict, strategy):
    found = verdict("pytorch", "tiny_resnet", fault="pytorch.ranks:SmallBuckets", devices=2, strategy=strategy)
    assert (found.verdict, found.reason) == ("same", "")


def test_a_ring_that_stops_too_early_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="pytorch.ranks:RingStopsEarly", devices=2, strategy="ring")
    assert found.verdict == "different"
    assert "the devices' parameters have come apart" in found.reason


def test_a_strategy_that_loses_more_than_its_bound_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="pytorch.ranks:Coarse", devices=2, strategy="bf16_compress")
    assert found.verdict == "different"
    assert "8 of 8 gradients differ" in found.reason


@pytest.mark.parametrize(("fault", "network"), [("Silent", "tiny_fcn"), ("Silent", "tiny_cnn"), ("OneRank", "tiny_fcn"),
                                                ("OneRank", "tiny_cnn")])
def test_a_power_sgd_that_sends_too_little_after_its_whole_steps_is_named(verdict, fault, network):
    found = verdict("pytorch", network, fault=f"pytorch.ranks:PowerSgd{fault}", devices=2, strategy="power_sgd")
    assert found.verdict == "different"
    assert found.reason.startswith("steps 3 to 8, whose gradients are not sent whole, have moved ")
    assert ("relative error 1," in found.reason) == (fault == "Silent")


def test_one_bit_that_adds_up_and_does_not_average_is_named(verdict):
    found = verdict("pytorch", "tiny_fcn", fault="pytorch.ranks:OneBitSum", devices=2, strategy="one_bit")
    assert found.verdict == "different"
    assert found.reason.startswith("the first step adds up to 2 times the right one's sum in dense")
    assert found.reason.endswith(": the sum over 2 devices instead of the mean")


@pytest.mark.parametrize(("strategy", "tuning"), [*((strategy, "stock") for strategy in STRATEGIES), pytest.param("ddp", "tuned", marks=slow)])
def test_parts_of_a_step_leave_the_weights_alone_but_for_the_update(runner, tmp_path, strategy, tuning):
    feed(runner, tmp_path, {**task_of(strategy), "tuning": tuning})
    before = runner.ask("copies", 300)["hashes"]
    for variant in ("F", "FB", "FBA", "A"):
        answer = runner.ask("phase", 300, variant=variant, steps=2)
        assert answer["steps"] == 2
        assert runner.ask("copies", 300)["hashes"] == before
    runner.ask("phase", 300, variant="FBAU", steps=2)
    after = runner.ask("copies", 300)["hashes"]
    assert after[0] == after[1] != before[0]


def test_ddps_aggregation_alone_waits_for_its_first_step(runner, tmp_path):
    feed(runner, tmp_path, task_of("ddp"), steps=0)
    with pytest.raises(Unsupported, match="DDP sorts its buckets in its first step"):
        runner.ask("phase", 300, variant="A", steps=1)


def task_of(strategy):
    return {"device": "cpu", "threads": 1, "precision": "fp32", "tuning": "stock", "devices": 2, "ranks": 2, "strategy": strategy}


def feed(worker, folder, task, steps=3):
    """Build tiny_fcn for `task` and train it for some steps."""
    to_train(worker, folder, 300, **task)
    if steps:
        worker.ask("run", 300, steps=steps)
