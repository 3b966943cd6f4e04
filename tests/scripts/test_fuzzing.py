"""The fuzzers of answers and records, for seconds and with fixed seeds; `scripts/fuzz.py` runs them longer."""

import random
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.records import reader
from analysis.records.text import BadRecords
from harness.workers import reading
from harness.workers.answers import Asked
from harness.workers.failures import Failed, Unsupported
from scripts.fuzzing import answers, records

REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
                    max_leaves=8)


@settings(REPEATABLE, max_examples=1000)
@given(st.sampled_from(sorted(answers.HONEST)), st.randoms(use_true_random=False))
def test_a_changed_answer_is_taken_refused_or_failed(command, draw):
    line = answers.changed(command, draw)
    assert list(answers.faults(command, line)) == []


@settings(REPEATABLE, max_examples=300)
@given(st.sampled_from(sorted(answers.HONEST)), st.data())
def test_any_value_may_stand_in_a_field(command, data):
    arguments, honest = answers.HONEST[command]
    field = data.draw(st.sampled_from(["status", *sorted(honest)]))
    answer = {"status": "ok", **honest, field: data.draw(JSON)}
    try:
        found = reading.check(answer, Asked(command, arguments, answers.SENT, lambda: answers.SENT + 10))
    except (Failed, Unsupported) as error:
        assert str(error).isprintable() and len(str(error)) < 1100
    else:
        assert list(answers._lies(found)) == []


@pytest.mark.parametrize("command", answers.HONEST)
def test_the_honest_answers_are_taken(command):
    arguments, honest = answers.HONEST[command]
    asked = Asked(command, arguments, answers.SENT, lambda: answers.SENT + 10)
    assert reading.check({"status": "ok", **honest, "more": 1}, asked) == honest


@settings(REPEATABLE, max_examples=60)
@given(st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore:.*the last line is unfinished")
def test_a_changed_campaign_is_read_or_named(tmp_path_factory, draw):
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(records.SMALL, folder, dirs_exist_ok=True)
    records.change(folder, draw)
    try:
        reader.read(folder)
    except BadRecords as error:
        assert len(str(error)) <= 500 and str(error).isprintable()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", [111, 118])
def test_what_the_fuzzer_found_is_named(tmp_path, seed):
    shutil.copytree(records.SMALL, tmp_path, dirs_exist_ok=True)
    records.change(tmp_path, random.Random(seed))
    assert list(records.faults(tmp_path)) == []
