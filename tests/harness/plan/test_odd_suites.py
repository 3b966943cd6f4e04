"""Whatever a suite's file holds, it is planned or refused in one short message, before anything is installed."""

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import networks
from harness import plain_yaml
from harness.errors import MOST_CHARACTERS, WrongUse
from harness.plan.planner import Machine, make_trials
from harness.plan.suite import Suite, load_suite
from networks import work
from tests.odd import suites

QUICK = settings(derandomize=True, deadline=None, max_examples=300, database=None,
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
NAMED = suites.named()
GOOD = suites.text_of(suites.BASE).encode()
SCALARS = (some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20)
           | some.sampled_from(["pytorch", "tiny_fcn", "fp32", "stock", "auto", "1:30", "1e400"]))
VALUES = some.recursive(SCALARS, lambda inner: some.lists(inner, max_size=4)
                        | some.dictionaries(some.text(max_size=8), inner, max_size=4), max_leaves=8)
SIGNS = some.text(some.sampled_from([*"{}[]:,-?&*!|>'\"%@`#~<=01.eE_\n \tabx", "\0", "\x1b", "\ud800"]), max_size=60)


@pytest.mark.parametrize("name", list(NAMED))
def test_a_wrong_suite_is_refused_in_one_short_message(name, tmp_path):
    ended = suites.judge(NAMED[name], tmp_path / "suite.yaml", (2,))
    assert ended.fault == ""
    assert any(named in ended.message for named in ("suite.yaml", "framework ", "interpreter of ", "/nowhere", "/usr/bin")), ended.message


@given(some.dictionaries(some.sampled_from(suites.KEYS), some.sampled_from([*suites.WRONG.values(), *suites.ODD.values()]), max_size=2))
@settings(QUICK, max_examples=60)
def test_a_suite_with_odd_values_is_planned_or_refused(tmp_path, odd):
    content = suites.text_of({**suites.BASE, **odd}).encode("utf-8", "surrogatepass")
    assert suites.judge(content, tmp_path / "suite.yaml", (0, 2)).fault == ""


@given(some.integers(0, len(GOOD)), some.integers(0, 30), some.text(some.characters(codec="utf-8"), max_size=5).map(str.encode) | some.binary(max_size=3))
@settings(QUICK, max_examples=60)
def test_a_suite_with_a_part_that_is_lost_or_replaced_is_planned_or_refused(tmp_path, place, size, part):
    content = GOOD[:place] + part + GOOD[place + size:]
    assert suites.judge(content, tmp_path / "suite.yaml", (0, 2)).fault == ""


@given(SIGNS)
@QUICK
def test_any_text_is_a_value_or_a_short_fault(text):
    try:
        plain_yaml.parse(text)
    except plain_yaml.NotPlain as fault:
        assert "\n" not in str(fault)


@given(some.dictionaries(some.sampled_from(suites.KEYS), VALUES, max_size=4))
@QUICK
def test_any_value_of_any_key_is_taken_or_refused_briefly(tmp_path, keys):
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(keys, allow_unicode=True), encoding="utf-8", errors="replace")
    try:
        assert isinstance(load_suite(file), Suite)
    except WrongUse as error:
        assert 10 < len(str(error)) <= MOST_CHARACTERS + 100


def test_what_yaml_reads_as_dates_and_base_60_is_text():
    read = plain_yaml.parse("[1:30, 2026-02-30, 017, 0x1f, 1_000, 1e3, .5, -.inf, ~, yes, 'no', 12]")
    assert read == ["1:30", "2026-02-30", 17, "0x1f", "1_000", 1000.0, 0.5, -math.inf, None, True, "no", 12]


def test_aliases_stand_for_values_within_the_limit():
    assert plain_yaml.parse("a: &x {b: [1]}\nc: *x") == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_an_estimate_counts_weights_momentum_and_what_products_read():
    network = networks.get("tiny_fcn")
    read = [network.shape_of(layer.inputs[0]) for layer in network.layers if layer.op == "dense"]
    values = sum(math.prod(shape) for shape in read)
    assert work.least_step_bytes(network, 10, 2) == 8 * network.parameter_count + 2 * 10 * values


@pytest.mark.parametrize(("machine", "who"), [
    (Machine("cpu", 4, 1, memory_bytes=2**30), "the machine has 1.0 GiB"),
    (Machine("cuda", 4, 1, 2**50, 2**30), "each GPU has 1.0 GiB"),
])
def test_a_trial_that_memory_cannot_hold_is_a_row_and_the_others_run(machine, who):
    suite = Suite(frameworks="pytorch", networks="fcn5", batches=(64, 5_000_000), data="host")
    few, many = make_trials(suite, {"pytorch": "2.13.0"}, machine, lambda name: False)
    assert (few.status, many.status) == ("planned", "unsupported")
    assert many.reason.startswith("out_of_memory: needs at least ") and who in many.reason


def test_a_suite_that_memory_cannot_hold_is_refused_with_its_batch(tmp_path):
    ended = suites.judge(b"frameworks: reference\nnetworks: fcn5\nbatch: 500000000\ndevice: cpu\ndata: host\n",
                         Path(tmp_path / "suite.yaml"), (2,))
    assert ended.fault == ""
    assert "batch 500000000 of fcn5: needs at least" in ended.message
