"""Whatever a worker answers, it is taken as its command's fields, refused, or failed in one short line."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.records.text import LONGEST_REASON
from harness.workers import reading
from harness.workers.answers import Asked
from harness.workers.failures import Failed, Unsupported

REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
                    max_leaves=8)
SENT = 1000.0
TIMED = {"steps": 2, "start": SENT + 1, "stop": SENT + 2}
WINDOWS = {"windows": [[SENT + 1, SENT + 2], [SENT + 3, SENT + 4]]}
# By command: its arguments and an honest answer.
HONEST = {
    "hello": ({}, {"python": "3.11.7", "numpy": "2.4.6", "pid": 7, "release": "2.13.0",
                   "device_name": "NVIDIA H200", "libraries": {"cudnn": 91002, "on": ["a"]}}),
    "build": ({}, {"parameters": 861, "settings": ["graphs"]}),
    "run": ({"steps": 2}, {**TIMED, "loss": 2.5, "peak_memory_bytes": 2**30}),
    "stages": ({"steps": 2}, {"stage_seconds": [0.1, 0.2]}),
    "train": ({"steps": 2}, {"losses": [2.5, 2.4]}),
    "copies": ({}, {"hashes": ["0" * 64, "1" * 64], "apart": {"dense1.bias": {"share": 0.1,
                                                                            "beyond": 0.0}}}),
    "apart": ({}, {"apart": {"dense1.bias": {"share": 0.1, "beyond": 0.0}}}),
    "phase": ({"steps": 2}, TIMED),
    "peak": ({"windows": 2}, WINDOWS),
    "time": ({"runs": [["a", 1], ["b", 2]]}, WINDOWS),
    "place": ({}, {"candidates": {"a": {"status": "ok", "reason": "", "operations": 4,
                                        "error": 1e-7, "workspace_bytes": 0}}}),
    "called": ({"names": ["a", "b"]}, {"called": {"a": ["flash_fwd", "copy"], "b": []}}),
    "open": ({}, {"links": {"send": "", "to_host": "no host"}}),
    "transfer": ({"steps": 2}, {**TIMED, "idle_seconds": 0.25}),
    "masked_head": ({}, {"mean": 1.0, "deviation": 0.1}),
    "close": ({}, {}),
}
ODD = (
    None, True, False, "", "ok", "failed", "unsupported", "nan", "\x1b[2J", "a\nb", "\ud800",
    "\u202e", 0, -1, 1, 2, 10**30, -10**30, 1.5, float("nan"), float("inf"), float("-inf"), 1e308,
    SENT, [],
    {}, [None], [[]], {"": {}}, "z" * 10_000)


@settings(REPEATABLE, max_examples=1000)
@given(st.sampled_from(sorted(HONEST)), st.randoms(use_true_random=False))
def test_a_changed_answer_is_taken_refused_or_failed(command, draw):
    line = changed(command, draw)
    assert list(faults(command, line)) == []


@settings(REPEATABLE, max_examples=300)
@given(st.sampled_from(sorted(HONEST)), st.data())
def test_any_value_may_stand_in_a_field(command, data):
    arguments, honest = HONEST[command]
    field = data.draw(st.sampled_from(["status", *sorted(honest)]))
    answer = {"status": "ok", **honest, field: data.draw(JSON)}
    try:
        found = reading.check(answer, Asked(command, arguments, SENT, lambda: SENT + 10))
    except (Failed, Unsupported) as error:
        assert str(error).isprintable() and len(str(error)) < 1100
    else:
        assert list(_lies(found)) == []


@pytest.mark.parametrize("command", HONEST)
def test_the_honest_answers_are_taken(command):
    arguments, honest = HONEST[command]
    asked = Asked(command, arguments, SENT, lambda: SENT + 10)
    assert reading.check({"status": "ok", **honest, "more": 1}, asked) == honest


def changed(command, draw):
    """Return a line of the wire whose answer to `command` is not what was asked for."""
    _, honest = HONEST[command]
    answer = {"status": "ok", **copy.deepcopy(honest)}
    for _ in range(draw.randint(1, 3)):
        _change(answer, draw)
    text = json.dumps(answer)
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice(("", "\0", "\x80", "[" * 5000, "9" * 5000)) + text[place:]
    return text


def faults(command, line):
    """Yield what the check of a line must not do."""
    arguments, honest = HONEST[command]
    try:
        asked = Asked(command, arguments, SENT, lambda: SENT + 10)
        found = reading.check(reading.parse(line), asked)
    except (Failed, Unsupported) as refusal:
        if len(str(refusal)) > LONGEST_REASON + 20 or not str(refusal).isprintable():
            yield f"a reason of {len(str(refusal))} characters"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
    else:
        if extra := set(found) - set(honest):
            yield f"kept {extra}"
        yield from _lies(found)


def _lies(found):
    """Yield what no honest answer says, whatever its command."""
    if "start" in found and not SENT <= found["start"] < found["stop"] <= SENT + 10:
        yield "times out of order"
    if found.get("steps", 2) != 2:
        yield "other steps"
    if not json.dumps(found, ensure_ascii=False).isprintable():
        yield "text that cannot be printed"
    if any(isinstance(value, int) and not 0 <= value <= 2**50 for value in found.values()):
        yield "a number out of range"


def _change(answer, draw):
    place = answer
    while isinstance(place, dict | list) and place:
        parent = place
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place = parent[key]
        if draw.random() < 0.3:
            break
    else:
        if place is answer:
            return
    if draw.random() < 0.2:
        del parent[key]
    elif draw.random() < 0.1 and isinstance(parent, dict):
        parent[draw.choice(("more", "", "\n"))] = copy.deepcopy(draw.choice(ODD))
    else:
        parent[key] = copy.deepcopy(draw.choice(ODD))
