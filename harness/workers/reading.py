"""Reads what workers say, checked before anybody uses it, and makes one answer of those of ranks.

Whatever does not fit raises Failed with the kind `protocol` and names the field. Keys that no model
has are dropped: a runner may say more than the driver reads, and nothing of it reaches a record.
"""

import contextlib
import json
import math
import reprlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from analysis.records.text import one_line
from harness.workers import answers
from harness.workers.answers import Answer, Asked, BuiltPart, Failure, Greeting, Recorded, Refusal
from harness.workers.failures import Failed, Unsupported

LONGEST_LINE = 4 * 2**20  # characters; the longest true answer is a point's of a study, some kB
LONGEST_MESSAGE = 300


def mean(values: Sequence[float]) -> float:
    """Return the mean; nan where some are infinite with either sign."""
    with contextlib.suppress(ValueError, OverflowError):
        return statistics.fmean(values)
    return math.nan


# The fields that may differ between ranks, and how they are merged. All others must be equal.
MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "start": min, "stop": max, "loss": mean, "peak_memory_bytes": max,
    "idle_seconds": max, "first_seconds": max, "pid": lambda values: values[0],
    "losses": lambda values: [mean(of_step) for of_step in zip(*values, strict=True)],
    "network_tx_bytes": sum, "stage_seconds": list,
    "hashes": lambda values: [value for hashes in values for value in hashes],
    # Rank 0 compares.
    "apart": lambda values: values[0],
    "held": lambda values: [each for held in values for each in held or [{}]],
}


def parse(line: str) -> dict[str, Any]:
    """Read a line of the wire. Raises Failed if it is no object or too long."""
    if len(line) > LONGEST_LINE:
        raise Failed("protocol", f"a line of more than {LONGEST_LINE:,} characters: "
                                 f"{line[:100]!r}")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Failed("protocol", f"not a line of JSON: {line.strip()[:200]!r}")
    return answer


def check(answer: Mapping[str, Any], asked: Asked, who: str = "") -> dict[str, Any]:
    """Return the fields of an answer. Raises Unsupported, or Failed where `who` begins the reason.

    A worker that failed by its own word has answered, and lives.
    """
    status, name = answer.get("status"), f"{who}answer to '{asked.command}'"
    if status == "unsupported":
        raise Unsupported(str(_valid(Refusal, answer, name)["reason"]))
    if status == "failed":
        failure = _valid(Failure, answer, name)
        raise Failed(failure["kind"], f"{who}{failure['reason']}", answered=True)
    if status != "ok":
        raise Failed("protocol", f"{name}: status: came {reprlib.repr(status)}, expected ok, "
                                 "unsupported or failed")
    model = answers.ANSWERS.get(asked.command, Answer)
    if asked.command == "phase" and not asked.arguments["steps"]:
        model = BuiltPart
    return _valid(model, answer, name, asked)


def greeting(line: str) -> Greeting:
    """Read a rank's first line. Raises Failed."""
    return Greeting(**_valid(Greeting, parse(line), "a rank's first line"))


def read(model: type[Recorded], text: bytes, asked: Asked) -> dict[str, Any]:
    """Read the JSON that a worker wrote for a command. Raises Failed."""
    return _valid(model, text, f"the file of '{asked.command}'", asked)


def _valid(model: type[Answer], answer: Mapping[str, Any] | bytes, name: str,
           asked: Asked | None = None) -> dict[str, Any]:
    try:
        if isinstance(answer, bytes):
            found = model.model_validate_json(answer, context=asked)
        else:
            found = model.model_validate(answer, context=asked)
    except ValidationError as error:
        reason = one_line(f"{name}: {sentence(error)}", LONGEST_MESSAGE)
        raise Failed("protocol", reason) from None
    return found.model_dump(exclude_unset=True)


def sentence(error: ValidationError) -> str:
    """Describe the first fault: its field, the value that came, and what was expected."""
    fault = error.errors(include_url=False)[0]
    if fault["type"] == "value_error" and not fault["loc"]:
        return str(fault["ctx"]["error"])
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"{field}: missing"
    wanted = str(fault["ctx"]["error"]) if fault["type"] == "value_error" else fault["msg"]
    wanted = wanted.removeprefix("Input should be ").removeprefix("Input should ")
    return f"{field}: came {reprlib.repr(fault['input'])}, expected {wanted}"


def in_our_clock(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let a window of another machine's clock, which ours knows nothing of, end now."""
    start, stop = message.get("start"), message.get("stop")
    if not (isinstance(start, float) and isinstance(stop, float)):
        return message
    now = time.monotonic()
    return {**message, "start": now - (stop - start), "stop": now}


def as_long_as_the_longest(answers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Let all ranks' windows be that of the one that took longest; a barrier stood before each."""
    if not all("start" in answer for answer in answers):
        return list(answers)
    stop = max(answer["stop"] for answer in answers)
    longest = max(answer["stop"] - answer["start"] for answer in answers)
    return [{**answer, "start": stop - longest, "stop": stop} for answer in answers]


def merged(command: str, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the answers of all ranks, in their order. Raises Failed if they disagree."""
    one = {}
    for key, value in answers[0].items():
        values = [answer.get(key) for answer in answers]
        if key in MERGED:
            value = MERGED[key](values)
        elif values != [value] * len(values):
            rank = next(rank for rank, other in enumerate(values) if other != value)
            raise Failed("different", f"rank {rank} answers '{command}' with {key} {values[rank]}, "
                                      f"rank 0 with {value}")
        one[key] = value
    return one
