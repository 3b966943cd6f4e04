"""All strategies by name, and the bytes that each sends: `docs/method/devices.md`."""

import math
from collections.abc import Mapping
from typing import Any

import networks
from analysis.strategies import aggregating, dividing
from analysis.strategies.facts import Divided, Strategy, Work

STRATEGIES: Mapping[str, Strategy] = {**aggregating.STRATEGIES, **dividing.STRATEGIES}
# Of one device, and of a framework that this release does not know.
UNKNOWN = Strategy(without=aggregating.NO_MODEL)


def of(strategy: str) -> Strategy:
    return STRATEGIES.get(strategy, UNKNOWN)


def wire_bytes(strategy: str, work: Work) -> float:
    """Return the bytes that all devices together send to each other in one aggregation.

    Copies to the host and flags of the library's protocols do not count; nan without a model.
    """
    known = of(strategy)
    if not known.legs:
        return math.nan
    return 0.0 if known.by_host else 2 * (work.devices - 1) * work.size_bytes * known.share


def host_bytes(strategy: str, work: Work) -> float:
    """Return the bytes that all devices copy to the host, and as many back; nan without a model.
    """
    known = of(strategy)
    if not known.legs:
        return math.nan
    return work.devices * work.size_bytes if known.by_host else 0.0


def step_bytes(trial: Mapping[Any, Any], settings: str) -> float:
    """Return the bytes that all devices of a trial send in a step; nan without a model.

    `settings` are those of its processes, which say how they divide the network.
    """
    known = of(trial["strategy"])
    if not known.step_bytes or (known.divides and not settings):
        return math.nan
    return known.step_bytes(Divided(
        networks.get(trial["network"]), trial["framework"], trial["precision"],
        int(trial["devices"]), int(trial["global_batch"]), settings))
