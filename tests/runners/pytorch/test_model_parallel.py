"""Strategies that divide the network train what one device trains, and send what the model says."""

import json

import pytest
from pydantic import ConfigDict

import networks
from analysis.strategies import dividing, table
from harness.campaign.process import idle_shares
from harness.environments import recipes
from harness.workers import answers
from harness.workers.failures import Unsupported as Refused
from harness.workers.ranks import Launch, Ranks
from runners import divisible
from runners.protocol import Unsupported
from runners.pytorch.model_parallel import divide
from tests.conftest import needs_compiler
from tests.ready import to_train
from tests.slow import slow_but

PARALLEL = recipes.load("pytorch").parallel
# Three heads divide among three devices alone.
DEVICES = 3
BATCH = 4
FOUND = [("tiny_gpt", strategy, "fp32") for strategy in dividing.STRATEGIES]
EVERY = [(network, strategy, precision) for network in ("tiny_gpt", "tiny_fcn")
         for strategy in dividing.STRATEGIES for precision in ("fp32", "bf16")]


class Sent(answers.Answer):
    """What the worker of these tests alone answers."""

    model_config = ConfigDict(extra="allow")


@pytest.fixture(scope="module")
def sent(interpreter_of, tmp_path_factory):
    """Return the bytes that ranks send in a step, and how they divide the network."""
    variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    log = tmp_path_factory.mktemp("ranks") / "log"
    with pytest.MonkeyPatch.context() as patch, Ranks(
            Launch(PARALLEL, DEVICES), interpreter_of("pytorch"),
            "tests.faults.pytorch.model_parallel", log, variables) as worker:
        patch.setattr(answers, "ANSWERS", {**answers.ANSWERS, "sent": Sent})
        worker.ask("hello", 300)
        yield lambda network, **task: worker.ask(
            "sent", 120, network=networks.get(network).to_json(), batch=BATCH, ranks=DEVICES, **task)


@pytest.mark.parametrize(("network", "strategy", "precision"), slow_but(
    [*FOUND, ("tiny_gpt", "tensor", "bf16")],
    [each for each in EVERY if each[:2] != ("tiny_fcn", "tensor")]))
def test_ranks_send_as_many_bytes_as_the_model_says(sent, network, strategy, precision):
    found = sent(network, strategy=strategy, precision=precision)
    trial = {"network": network, "framework": "pytorch", "precision": precision,
             "devices": DEVICES, "global_batch": BATCH * DEVICES, "strategy": strategy}
    predicted = table.step_bytes(trial, "; ".join(found["settings"]))
    # DTensor sums the loss of divided logits out of this count's sight.
    hidden = 2 * (DEVICES - 1) * 3 * 4 * BATCH * DEVICES * 16 if strategy == "tensor" else 0
    assert sum(found["sent"].values()) == predicted - hidden


def test_a_width_that_does_not_divide_is_refused_with_its_layer(sent):
    with pytest.raises(Refused, match="layer dense1: 16 units do not divide among 3"):
        sent("tiny_fcn", strategy="tensor", precision="fp32")


def described(name):
    found = networks.get(name).to_json()
    return found if isinstance(found, dict) else json.loads(found)


def test_pairs_are_dense_layers_with_activations_or_attention_between():
    assert divisible.pairs(described("tiny_gpt"), 3) == [
        ("dense1", "dense2"), ("dense3", "dense4"), ("dense5", "dense6"), ("dense7", "dense8")]
    assert divisible.pairs(described("fcn5"), 2) == [("dense1", "dense2"), ("dense3", "dense4")]
    with pytest.raises(Unsupported, match="attention1: 3 heads do not divide among 2 devices"):
        divisible.pairs(described("tiny_gpt"), 2)


def test_stages_end_where_one_value_crosses_and_balance_the_products():
    stages = divide.stages(described("gpt2_small"), 2)
    assert [stage[-1] for stage in stages] == ["add17", "tied_dense1"]
    work = divide.multiply_adds(described("gpt2_small"))
    costs = [sum(work[name] for name in stage) for stage in stages]
    assert max(costs) < 1.06 * min(costs)
    assert sum(costs) == sum(work.values())


def test_a_network_has_no_more_stages_than_places_to_cut():
    with pytest.raises(Unsupported, match="a pipeline of 5 stages: tiny_fcn can be cut at 3 places"):
        divide.stages(described("tiny_fcn"), 5)


@pytest.mark.parametrize(("rows", "stages", "count"), [(16, 2, 8), (12, 3, 12), (6, 2, 6)])
def test_a_batch_goes_through_in_at_most_four_parts_a_stage(rows, stages, count):
    assert divide.micro_batches(rows, stages) == count


def test_a_batch_without_enough_parts_is_refused():
    with pytest.raises(Unsupported, match="a global batch of 2 has no 3 to 12 equal parts"):
        divide.micro_batches(2, 3)


@needs_compiler
@pytest.mark.parametrize("strategy", slow_but(["fsdp"], ["tensor", "pipeline_gpipe", "pipeline_1f1b", "fsdp"]))
def test_a_divided_network_is_the_same_when_compiled(verdict, strategy):
    found = verdict("pytorch", "tiny_gpt", devices=DEVICES, strategy=strategy, tuning="compiled")
    assert (found.verdict, found.reason) == ("same", "")


def test_a_divided_network_has_no_tuned_tier(verdict):
    found = verdict("pytorch", "tiny_gpt", devices=DEVICES, strategy="fsdp", tuning="tuned")
    assert (found.verdict, found.reason) == ("unsupported", "strategy 'fsdp': its tiers are stock and compiled")


@pytest.mark.parametrize("strategy", ["pipeline_gpipe", "pipeline_1f1b"])
@pytest.mark.parametrize(("fault", "idle"), [("Sleeps", (1 / 9, 1 / 9)), ("LastStageSleepsLonger", (0.8, 0.02))])
def test_a_stage_says_how_long_it_computes_so_its_idle_share_is_known(worker_for, tmp_path, strategy, fault, idle):
    """With sleeping stages: equal ones wait as long as the model says, else the quick one waits for the other."""
    task = {"devices": 2, "strategy": strategy}
    with worker_for("pytorch", f"pytorch.model_parallel:{fault}", task) as worker:
        to_train(worker, tmp_path, 120, batch=4, **task)
        answer = worker.ask("stages", limit=60, steps=6)["stage_seconds"]
    found = [float(share) for share in idle_shares(answer).split()]
    assert found == pytest.approx(idle, abs=0.08)


def test_idle_shares_are_those_of_the_longest_span():
    assert idle_shares([(1.0, 4.0), (2.0, 2.0)]) == "0.7500 0.5000"
