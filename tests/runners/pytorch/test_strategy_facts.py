"""Each strategy that a framework offers has its facts in the analysis, and PyTorch's classes agree."""

import ast
from pathlib import Path

import pytest

from analysis.display import palette
from analysis.strategies import table
from analysis.strategies.facts import Strategy
from harness.environments import recipes
from runners.pytorch.strategies import STRATEGIES

PACKAGE = Path(__file__).parents[3] / "runners" / "pytorch"
CLASSES = {node.name: node for path in PACKAGE.rglob("*.py")
           for node in ast.parse(path.read_text(encoding="utf-8")).body
           if isinstance(node, ast.ClassDef)}


def bases(name):
    """Return the names of a class and of those that it derives from, in PyTorch's package."""
    node = CLASSES.get(name)
    return {name}.union(*(bases(base.id) for base in node.bases if isinstance(base, ast.Name))) if node else set()


def kind(strategy):
    return bases(STRATEGIES[strategy].rpartition(".")[2])


def unknown(strategies):
    return sorted(set(strategies) - set(table.STRATEGIES))


def test_every_strategy_of_every_framework_has_a_model_or_says_why_it_has_none():
    offered = recipes.strategies()
    assert unknown(offered) == []
    assert {name for name in offered if not table.of(name).legs and not table.of(name).without} == set()


def test_a_new_strategy_without_its_facts_is_found():
    assert unknown([*recipes.strategies(), "butterfly"]) == ["butterfly"]
    with pytest.raises(ValueError, match="or says why it has none"):
        Strategy(share=1 / 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_configuration_lists_the_strategies_of_each_kind_of_device(device):
    assert recipes.load("pytorch").parallel.strategies[device] == list(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_class_that_implements_a_strategy_exists(name):
    module, _, implementation = STRATEGIES[name].rpartition(".")
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert implementation in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_analysis_knows_what_a_strategys_class_does(name):
    facts = table.of(name)
    assert facts.after_backward == ("Messages" in kind(name))
    assert facts.divides == ("ModelParallel" in kind(name))
    assert facts.by_host == ("HostOne" in kind(name))
    assert facts.bucketed == ("DDP" in kind(name) and facts.legs is not None)
    assert facts.step_bytes is not None or not facts.divides


@pytest.mark.parametrize("name", [name for name in STRATEGIES if table.of(name).legs])
def test_the_analysis_counts_the_bytes_that_a_strategy_sends(name):
    work, facts = table.Work(size_bytes=4096.0, devices=2), table.of(name)
    assert table.host_bytes(name, work) == (2 * 4096 if facts.by_host else 0)
    sent = {"one_bit": 136 / 4096, "bf16_compress": 1 / 2}.get(name, 1)
    assert table.wire_bytes(name, work) == (0 if facts.by_host else 2 * 4096 * sent)


def test_every_strategy_has_its_own_marker_in_plots():
    assert set(STRATEGIES) <= set(palette.STRATEGIES)
