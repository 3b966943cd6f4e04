"""How a suite's keys may be written: shorthands, one value for a list, `key=value` overrides."""

from typing import Any

import yaml
from pydantic import BaseModel

from harness import plain_yaml
from harness.errors import WrongUse, brief

SHORTHANDS = {"batch": "batches", "network": "networks", "framework": "frameworks",
              "precision": "precisions", "tuning": "tunings", "strategy": "strategies",
              "scenario": "scenarios"}


def lists(model: type[BaseModel], data: Any) -> Any:
    """Turn one value into a list of one wherever the model wants a list."""
    if not isinstance(data, dict):
        return data
    written: dict[str, Any] = {}
    for spelling, value in data.items():
        key = SHORTHANDS.get(spelling) or spelling
        if key in written:
            raise ValueError(f"{spelling}: {key} is written twice; "
                             "a key and its shorthand are the same")
        field = model.model_fields.get(key)
        wants_list = field is not None and str(field.annotation).startswith("tuple")
        written[key] = [value] if wants_list and not isinstance(value, list | tuple) else value
    return written


def remedy(model: type[BaseModel], key: str) -> str:
    """Return what to write for a key that has no value: its default, as YAML."""
    field = model.model_fields.get(key)
    default = field.get_default(call_default_factory=True) if field else None
    if not default or isinstance(default, dict | BaseModel):
        return "write one, or leave the key out"
    plain = list(default) if isinstance(default, tuple) else default
    shown = yaml.safe_dump(plain, default_flow_style=True).split("\n")[0]
    return f"write one, as in {key}: {shown}, or leave the key out"


def override(data: dict[str, Any], words: list[str]) -> None:
    """Set keys of a suite by `key=value`; of a key given twice the last wins. Raises WrongUse."""
    for word in words:
        key, equals, _ = (part.strip() for part in word.partition("="))
        if not equals or not key:
            raise WrongUse(f"override '{brief(word, 60)}': write key=value, "
                           "for example devices=1,2")
        _set(data, key, _value(word))


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    """Set one key, in either spelling. A value for all networks replaces that of each."""
    *parents, last = key.split(".")
    for parent in parents:
        if data.get(parent) is None:
            data[parent] = {}
        names = [data[parent]] if isinstance(data[parent], str) else data[parent]
        # A list of names, as `Suite` takes it.
        if SHORTHANDS.get(parent, parent) == "networks" and isinstance(names, list):
            data[parent] = {str(name): None for name in names}
        data = data[parent]
        if not isinstance(data, dict):
            raise WrongUse(f"override '{key}': '{parent}' is not a mapping, "
                           "so nothing below it can be set")
    meant = SHORTHANDS.get(last, last)
    each = data.get("networks", data.get("network"))
    if not parents and isinstance(each, dict):
        if meant == "networks" and not (value is None or isinstance(value, dict)):
            names = value if isinstance(value, list) else [value]
            if any(isinstance(name, dict | list) for name in names):
                raise WrongUse(f"override '{key}': write names, or one mapping from names")
            value = {name: each.get(name) for name in names}
        for choice in each.values():
            if isinstance(choice, dict):
                _drop(choice, meant)
    _drop(data, meant)
    data[last] = value


def _drop(data: dict[str, Any], key: str) -> None:
    for spelling in [spelling for spelling in data if SHORTHANDS.get(spelling, spelling) == key]:
        del data[spelling]


def _value(word: str) -> Any:
    key, _, text = word.partition("=")
    try:
        several = "," in text and key != "title" and not text.lstrip().startswith(("[", "{"))
        return plain_yaml.parse(f"[{text}]" if several else text)
    except plain_yaml.NotPlain as error:
        raise WrongUse(f"override '{brief(word, 60)}': its value is not YAML "
                       f"({brief(str(error), 150)}); write one value, or several with one "
                       "comma between two, as in devices=1,2") from None
