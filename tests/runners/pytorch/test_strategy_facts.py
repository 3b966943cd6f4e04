"""What the configuration and the analysis say about a strategy is what its own facts say."""

import ast
from pathlib import Path

import pytest

from analysis.aggregation import strategies
from analysis.display import palette
from analysis.proof import tolerances
from analysis.trials import model_parallel, phases
from harness.environments import recipes
from runners.pytorch.strategies import STRATEGIES

PACKAGE = Path(__file__).parents[3] / "runners" / "pytorch"


def names(condition):
    return {name for name, facts in STRATEGIES.items() if condition(facts)}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_configuration_lists_the_strategies_of_each_kind_of_device(device):
    listed = recipes.load("pytorch").parallel.strategies[device]
    assert listed == [name for name, facts in STRATEGIES.items() if device in facts.device_kinds]


@pytest.mark.parametrize("facts", STRATEGIES.values(), ids=list(STRATEGIES))
def test_the_class_that_implements_a_strategy_exists(facts):
    module, _, name = facts.implementation.rpartition(".")
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_the_proof_has_tolerances_for_the_strategies_that_are_not_exact():
    assert set(tolerances.LOSSY) == names(lambda facts: not facts.exact)


def test_the_analysis_knows_which_strategies_wait_for_the_backward_pass():
    assert set(phases.AFTER_BACKWARD) == names(lambda facts: facts.after_backward)
    modelled = names(lambda facts: not facts.after_backward and facts.sent_share)
    bucketed = {name for name in STRATEGIES
                if name in strategies.STRATEGIES and strategies.STRATEGIES[name].bucketed}
    assert bucketed == modelled


@pytest.mark.parametrize("facts", STRATEGIES.values(), ids=list(STRATEGIES))
def test_the_analysis_counts_the_bytes_that_a_strategy_sends(facts):
    if facts.sent_share is None:
        assert facts.name not in strategies.STRATEGIES
        return
    assert strategies.STRATEGIES[facts.name].share == facts.sent_share
    work = strategies.Work(size_bytes=4096.0, devices=2)
    assert (strategies.host_bytes(facts.name, work) > 0) == facts.on_host
    assert strategies.wire_bytes(facts.name, work) == (
        0 if facts.on_host else 2 * 4096 * facts.sent_share)


def test_every_strategy_has_its_own_marker_in_plots():
    assert set(STRATEGIES) <= set(palette.STRATEGIES)


def test_the_analysis_knows_which_strategies_divide_the_network():
    assert set(model_parallel.DIVIDING) == names(lambda facts: facts.divides)
    assert set(model_parallel.DIVIDING) <= set(model_parallel.BYTES)
