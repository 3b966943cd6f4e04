"""Reads plain YAML: mappings with keys of text, lists, text, numbers, true, false and null.

A number is decimal; dates, base 60, tags and merge keys are not read as anything but text. Sizes
are limited, so that no file takes long or fills memory. Every fault is a `NotPlain`.
"""

import re
import stat
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 2**16
MOST_DEPTH = 20
# Each alias counts as all the values that it stands for.
MOST_VALUES = 10_000
MOST_DIGITS = 18
INT = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
                   r"|\.(nan|NaN|NAN)")
NULLS = ("", "~", "null", "Null", "NULL")
UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


class NotPlain(ValueError):
    """What is wrong with a text or a file, in one line."""


def read(path: Path) -> Any:
    """Read a regular file. Raises NotPlain and OSError."""
    if "\0" in str(path):
        raise NotPlain("is not the name of a file")
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotPlain("is not a regular file; name a file of YAML")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NotPlain(f"is larger than {MOST_BYTES // 1024} KiB; a suite is a screen of YAML")
    return parse(content.decode("utf-8"))


def parse(text: str) -> Any:
    """Return the value of one YAML document. Raises NotPlain with the line."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise NotPlain(_place(error.problem_mark) + str(error.problem)) from None
    except yaml.YAMLError as error:
        raise NotPlain(str(error).splitlines()[0]) from None
    return None if node is None else _value(node)


class _Loader(yaml.SafeLoader):
    """Composes nodes within the limits."""

    def __init__(self, text: str):
        super().__init__(text)
        self.depth = self.values = 0
        self.sizes: dict[int, int] = {}  # values within each node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event, before = self.peek_event(), self.values
        self.depth += 1
        if getattr(event, "tag", None) not in (None, "!"):
            raise _fault(event, f"the tag {event.tag} is not read; write the value alone")
        if self.depth > MOST_DEPTH:
            raise _fault(event, f"more than {MOST_DEPTH} levels")
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self.sizes:
                raise _fault(event, f"*{event.anchor} stands within itself")
            self.values += self.sizes[id(node)]
        self.depth -= 1
        self.values += 1
        if self.values > MOST_VALUES:
            raise _fault(event, f"more than {MOST_VALUES:,} values")
        self.sizes[id(node)] = self.values - before
        return node


def _fault(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}: " if mark else ""


def _value(node: Any) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(each) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    return _scalar(node)


def _mapping(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise NotPlain(f"{_place(key_node.start_mark)}a key is a list or a mapping; "
                           "write a word")
        key = _text(key_node)
        if key in found:
            raise NotPlain(f"{_place(key_node.start_mark)}the key {key} is written twice")
        found[key] = _value(value_node)
    return found


def _scalar(node: Any) -> Any:
    text = _text(node)
    if node.style is not None:
        return text
    if text in NULLS:
        return None
    if node.tag == "tag:yaml.org,2002:bool":
        return yaml.SafeLoader.bool_values[text.lower()]
    if INT.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise NotPlain(f"{_place(node.start_mark)}a whole number of {len(text):,} digits; "
                           f"at most {MOST_DIGITS} are read")
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text.replace(".", "") if text[-1] in "fFnN" else text)
    return text


def _text(node: Any) -> str:
    if found := UNPRINTABLE.search(node.value):
        raise NotPlain(f"{_place(node.start_mark)}the character {found[0]!a} cannot be printed; "
                       "remove it")
    return str(node.value)
