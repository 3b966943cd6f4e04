"""Reads a YAML file into a pydantic model, with one clear message for every error.

The message names the file, the key and the remedy, and suggests the closest known key.
"""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from harness import plain_yaml
from harness.errors import MOST_CHARACTERS, WrongUse, brief

CHECKOUT = Path(__file__).resolve().parents[1]
# Where dlbench keeps what it makes and fetches: the checkout, or the user's cache without one.
OWN = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else Path(
    os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dlbench"
MOST_FAULTS = 10
# How pydantic asks for one of our models.
NAMED_MODEL = re.compile(r"dictionary or instance of \w+")


class Strict(BaseModel):
    """The base of every configuration model: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Model = TypeVar("Model", bound=BaseModel)
KINDS = {"NoneType": "empty", "list": "a list", "str": "a text"}  # what a file of YAML may hold


def load_yaml(path: Path, model: type[Model]) -> Model:
    """Read `path` as a `model`, or raise `WrongUse` with every fault on a line of its own."""
    return validate(read_yaml(path), model, short(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in `path`. Raises WrongUse without a file, a mapping or valid YAML."""
    if path.is_dir():
        raise WrongUse(f"{short(path)}: is a folder; name a file of YAML in it")
    try:
        data = plain_yaml.read(path)
    except FileNotFoundError:
        others = sorted(other.name for other in path.parent.glob("*.yaml"))
        near = did_you_mean(path.name, others) or "; name a file of YAML"
        raise WrongUse(f"{short(path)}: no such file{near}") from None
    except (OSError, UnicodeDecodeError) as error:
        remedy = "; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise WrongUse(f"{short(path)}: cannot be read: {error}{remedy}") from None
    except plain_yaml.NotPlain as error:
        raise WrongUse(f"{short(path)}: not valid YAML: {brief(str(error), 200)}") from None
    if not isinstance(data, dict):
        kind = KINDS.get(type(data).__name__, "a single value")
        raise WrongUse(f"{short(path)}: must be a mapping of keys to values, is {kind}")
    return data


def validate(data: dict[str, Any], model: type[Model], source: str) -> Model:
    """Turn `data` into a `model`. Raises WrongUse naming `source`, wrong keys and remedies."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = [f"{source}: {_sentence(fault, model)}"
                 for fault in error.errors(include_url=False)[:MOST_FAULTS]]
        raise WrongUse(_list(first, error.error_count())) from None


def _list(faults: Sequence[str], count: int) -> str:
    """Return one fault a line, as many as a message holds of all `count`."""
    lengths = accumulate(len(fault) + 1 for fault in faults)
    shown = max(1, sum(length <= MOST_CHARACTERS - 40 for length in lengths))
    more = count - shown
    rest = [f"and {more:,} more {'fault' if more == 1 else 'faults'}"] if more else []
    return "\n".join([brief(faults[0], MOST_CHARACTERS - 40), *faults[1:shown], *rest])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X? Known: ..." as the end of a message, or ""."""
    known = sorted(known)
    if not known:
        return ""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return (f"; did you mean {close[0]}?" if close else ";") + f" Known: {', '.join(known)}"


def short(path: Path) -> str:
    """Name `path` from the checkout's root where it lies inside."""
    absolute = path.absolute()
    return str(absolute.relative_to(CHECKOUT)) if absolute.is_relative_to(CHECKOUT) else str(path)


def _sentence(fault: Any, model: type[BaseModel]) -> str:
    *parents, last = fault["loc"] or ("",)
    key = brief(".".join(str(part) for part in fault["loc"]), 60)
    if fault["type"] == "extra_forbidden":
        owner = _model_at(model, parents)
        known = owner.model_fields if owner else ()
        return f"{key}: unknown key{did_you_mean(str(last)[:60], known)}"
    if fault["type"] == "missing":
        return f"{key}: this key is missing; add it"
    # A validator's own words need no quotation of the value.
    if fault["type"] == "value_error":
        return f"{key}: {fault['ctx']['error']}" if key else str(fault["ctx"]["error"])
    message = fault["msg"][0].lower() + fault["msg"][1:]
    message = NAMED_MODEL.sub("mapping", message)
    unquoted = fault["type"] == "string_type" and isinstance(fault["input"], int | float)
    quotes = ('; YAML reads it as a number or a truth value, so put it in "quotes"'
              if unquoted else "")
    message, found = brief(message, 160), brief(repr(fault["input"]), 60)
    return f"{key}: {message}, is {found}{quotes}{_default(model, fault['loc'])}"


def _default(model: type[BaseModel], place: Sequence[str | int]) -> str:
    """Return a key's default as the end of a message, or "" where it says nothing."""
    *parents, last = [part for part in place if isinstance(part, str)] or [""]
    owner = _model_at(model, list(parents))
    field = owner.model_fields.get(last) if owner else None
    if field is None or field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, BaseModel) or default in ({}, (), ""):
        return ""
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
    return f"; the default is {shown}"


def _model_at(model: Any, parts: list[Any]) -> type[BaseModel] | None:
    """Follow an error's location to its model: fields by name, lists by their element's type."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if not parts:
            return model
        field = model.model_fields.get(str(parts[0]))
        return _model_at(field.annotation, parts[1:]) if field else None
    inner = [_model_at(argument, parts[1:]) or _model_at(argument, parts)
             for argument in get_args(model)]
    return next((found for found in inner if found), None)
