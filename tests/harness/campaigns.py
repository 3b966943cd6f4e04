"""Small campaigns for tests: networks of microseconds, one thread, two processes."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.records import reader
from analysis.records.reader import Campaign
from harness.campaign import campaign
from harness.campaign.process import Sight
from harness.plan.suite import Suite

SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 2, "windows": 2, "window_seconds": 0.01,
         "peaks": False, "data": "host", "check": {"steps": 4}}


def run(folder: Path, resume: bool = False, watch: Callable[[Sight], None] = lambda sight: None, allow_dirty: bool = False,
        note: Callable[[str], None] = lambda text: None, **suite: Any) -> Campaign:
    prepared = campaign.prepare(Suite.model_validate({**SMALL, **suite}), "suite.yaml", allow_dirty)
    campaign.run(prepared, folder, resume, watch, note, lambda outcome, number, total: None)
    return reader.read(folder)


def table(folder: Path) -> dict[str, dict[str, str]]:
    """The rows of trials.csv by framework and network."""
    with (folder / "trials.csv").open() as file:
        return {f"{row['framework']} {row['network']}": row for row in csv.DictReader(file)}
