"""Small campaigns for tests: networks of microseconds, one thread, two processes."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.records import reader
from analysis.records.reader import Campaign
from harness.campaign import campaign
from harness.campaign.events import Event, Listener
from harness.plan.suite import Suite
from networks import catalogue

SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 2, "windows": 2,
         "window_seconds": 0.01, "peaks": False, "data": "host"}


class Heard(Listener):
    """Hands on what it hears."""

    def __init__(self, watch: Callable[[Event], None] | None = None,
                 note: Callable[[str], None] | None = None):
        if watch:
            self.watch = watch  # type: ignore[method-assign]
        if note:
            self.note = note  # type: ignore[method-assign]


def run(folder: Path, resume: bool = False, watch: Callable[[Event], None] | None = None,
        allow_dirty: bool = False, note: Callable[[str], None] | None = None,
        **suite: Any) -> Campaign:
    plan = campaign.prepare(Suite.model_validate({**SMALL, **suite}), "suite.yaml", allow_dirty)
    campaign.run(plan, folder, Heard(watch, note), resume)
    return reader.read(folder)


def table(folder: Path) -> dict[str, dict[str, str]]:
    """The rows of trials.csv by framework and network."""
    with (folder / "trials.csv").open() as file:
        return {f"{row['framework']} {row['network']}": row for row in csv.DictReader(file)}


def take_networks(monkeypatch):
    """Let a test add networks to the catalogue, and feed them from the data sets that ship."""
    for registry in ("_makers", "_small"):
        monkeypatch.setattr(catalogue, registry, getattr(catalogue, registry).copy())
    monkeypatch.delenv("DLBENCH_DATA", raising=False)
