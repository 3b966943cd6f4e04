"""What only ranks, parts of a step and traces answer; tests/faults/processes/hostile.py has the rest."""

import json
import math

import pytest

from harness.workers.answers import Asked, Profiled, Traced
from harness.workers.failures import Failed
from harness.workers.reading import LONGEST_LINE, check, greeting, mean, parse, read

TRACED = {"steps": 2, "wall_seconds": 1.0, "kernels": [{"name": "gemm", "count": 2, "seconds": 0.5}], "busy_seconds": 0.5,
          "copies": [{"kind": "memset", "count": 1, "bytes": 8, "seconds": 0.1}], "timeline": [[0, 0, 5], [1, 2, 3]],
          "span_seconds": 0.9}
PROFILED = {"steps": 2, "wall_seconds": 1.0, "spans": [["mm", 7, 0.0, 1.0], ["add", "a/1", 1.0, 2.0]]}


def asked(command, **arguments):
    return Asked(command, arguments, 0.0)


@pytest.mark.parametrize("line", [
    "", "[]", "{}", "?", '{"rank": -1, "pid": 7}', '{"rank": 0}', '{"rank": 0, "pid": "7"}', '{"rank": true, "pid": 7}',
    '{"rank": 0, "pid": 1e30}', pytest.param((LONGEST_LINE + 1) * "a", id="long")])
def test_a_rank_that_does_not_say_who_it_is_is_a_protocol_failure(line):
    with pytest.raises(Failed) as caught:
        greeting(line)
    assert caught.value.kind == "protocol" and len(str(caught.value)) < 400


def test_a_rank_says_its_number_and_its_process():
    said = greeting('{"rank": 1, "pid": 7}')
    assert (said.rank, said.pid) == (1, 7)


def test_losses_of_ranks_that_diverged_have_no_mean():
    assert math.isnan(mean([math.inf, -math.inf])) and math.isnan(mean([1e308, 1e308]))
    assert mean([1.0, 2.0]) == 1.5


def test_a_part_that_was_only_built_has_no_times():
    assert check(parse('{"status": "ok", "steps": 0}'), asked("phase", steps=0)) == {"steps": 0}
    with pytest.raises(Failed, match=r"protocol: answer to 'phase': steps: came 1, expected 0"):
        check({"status": "ok", "steps": 1}, asked("phase", steps=0))


@pytest.mark.parametrize("said", [[0.0, 0.0], [0.3, 0.2], [0.1], "x", [0.1, math.nan]])
def test_a_stage_works_within_its_span(said):
    answer = {"status": "ok", "stage_seconds": [0.1, 0.2]}
    assert check(answer, asked("stages", steps=1))["stage_seconds"] == [0.1, 0.2]
    with pytest.raises(Failed, match="stage_seconds"):
        check({**answer, "stage_seconds": said}, asked("stages", steps=1))


@pytest.mark.parametrize(("model", "honest"), [(Traced, TRACED), (Profiled, PROFILED)])
def test_a_file_of_steps_is_read(model, honest):
    assert json.loads(json.dumps(read(model, json.dumps(honest).encode(), asked("trace", steps=2)))) == honest


@pytest.mark.parametrize(("model", "text", "words"), [
    (Traced, b"", "Invalid JSON"), (Traced, b"\xff\xfe", "Invalid JSON"), pytest.param(Traced, 100_000 * b"[", "Invalid JSON", id="nested"),
    (Traced, b"[]", "expected an object"), (Profiled, b"{}", "missing"),
    *((Traced, json.dumps({**TRACED, **change}).encode(), words) for change, words in (
        ({"steps": 3}, "steps: came 3, expected 2"), ({"steps": 0}, "steps: came 0"),
        ({"wall_seconds": math.nan}, "wall_seconds: came nan"), ({"busy_seconds": -1}, "busy_seconds: came -1"),
        ({"timeline": [[2, 0, 1]]}, "timeline: came [2, 0, 1]"), ({"timeline": [[0, 2, 1]]}, "timeline: came [0, 2, 1]"),
        ({"timeline": [[0]]}, "timeline.0: came [0]"), ({"kernels": [{"name": None}]}, "kernels.0"),
        ({"copies": {}}, "copies: came {}"))),
    *((Profiled, json.dumps({**PROFILED, "spans": spans}).encode(), "spans") for spans in (
        None, [[]], [["mm", 7, 0.0]], [["mm", 7, 0.0, math.inf]], [[7, 7, 0.0, 1.0]])),
])
def test_a_file_of_steps_that_does_not_fit_names_its_field(model, text, words):
    with pytest.raises(Failed) as caught:
        read(model, text, asked("trace", steps=2))
    assert caught.value.kind == "protocol" and words in str(caught.value)
    assert len(str(caught.value)) < 400 and str(caught.value).isprintable()
