"""Reads what counts as a regression: thresholds and acknowledged regressions."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

import networks
from analysis.compare.releases import read_range
from analysis.compare.rules import Acknowledged, Rules
from harness.environments import recipes
from harness.errors import WrongUse, brief
from harness.validation import Strict, did_you_mean, load_yaml

SHARE = "write a share such as 3% or 0.03"


def _share(value: object) -> float:
    try:
        return share_of(str(value))
    except WrongUse:
        raise ValueError(f"{brief(repr(value), 60)}: {SHARE}") from None


def _range(value: object) -> str:
    read_range(str(value))
    return str(value)


def _day(value: object) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{brief(repr(value), 60)}: write a day as in 2027-01-31") from None


Share = Annotated[float, BeforeValidator(_share)]
Text = Annotated[str, Field(min_length=1, max_length=300)]


class Known(Strict):
    """A regression that is known and does not fail until a day."""

    framework: str
    releases: Annotated[str, BeforeValidator(_range)]
    network: str
    reason: Text
    until: Annotated[date, BeforeValidator(_day)]


class RulesFile(Strict):
    """The file of `--rules`."""

    thresholds: dict[str, Share] = {}
    acknowledged: tuple[Known, ...] = ()


def share_of(text: str) -> float:
    """Read `3%` or `0.03`. Raises WrongUse."""
    try:
        share = float(text.rstrip("% ")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise WrongUse(f"{text or 'nothing'}: {SHARE}")
    return share


def read(fail_on_regression: str | None, thresholds: Sequence[str], file: Path | None) -> Rules:
    """Put together the options' thresholds and the file's; options win. Raises WrongUse."""
    found = load_yaml(file, RulesFile) if file else RulesFile()
    shares = {**found.thresholds}
    for option in thresholds:
        name, equals, text = option.rpartition("=")
        shares[name if equals else "default"] = _of("--threshold", text)
    if fail_on_regression is not None:
        shares["default"] = _of("--fail-on-regression", fail_on_regression)
    source = f"{file}: " if file else ""
    _refuse_unknown(f"{source}thresholds", [name for name in shares if name != "default"], {})
    for known in found.acknowledged:
        _refuse_unknown(f"{source}acknowledged", [known.network], {"framework": known.framework})
    listed = tuple(Acknowledged(known.framework, read_range(known.releases), known.network,
                                known.reason, known.until) for known in found.acknowledged)
    return Rules(shares.pop("default", None), shares, listed)


def _of(option: str, text: str) -> float:
    try:
        return share_of(text)
    except WrongUse as error:
        raise WrongUse(f"{option} {error}") from None


def _refuse_unknown(place: str, named: Sequence[str], others: Mapping[str, str]) -> None:
    every = [*networks.names(), *networks.names(small=True)]
    for name in named:
        if name not in every:
            raise WrongUse(f"{place}: unknown network {brief(name, 60)}"
                           f"{did_you_mean(name, networks.names())}")
    for name in others.values():
        recipes.load(name)
