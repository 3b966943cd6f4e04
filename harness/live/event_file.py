"""A running campaign's events as lines of JSON, which the live page follows.

The driver adds lines between windows, so a page that follows them works while nothing is timed. The
records hold everything that stays; the file goes once a campaign has finished.
"""

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from analysis.records import reader
from analysis.records.text import BadRecords
from harness.campaign.events import Event, Listener, Outcome

NAME = "logs/events.jsonl"
# The page draws these readings of a device, and the rates of these totals.
SHOWN = ("power_watts", "memory_used_bytes", "busy_percent", "sm_mhz")
TOTALS = ("pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes")
TRIAL = ("trial", "framework", "release", "network", "batch", "devices", "precision", "tuning")

RECENT = 10.0  # seconds

Line = dict[str, Any]


class EventFile(Listener):
    """Writes what it hears, and passes it on. A context manager.

    The file goes at the campaign's end, or when the context is left before. It begins once the
    campaign has its first page, with what the records hold already.
    """

    def __init__(self, folder: Path, title: str, inner: Listener):
        self.inner = inner
        self.folder = folder
        self.path = folder / NAME
        self.first = {"event": "begin", "title": title}
        self.file: IO[str] | None = None
        # Processes that get ready side by side tell of it from their own threads.
        self.lock = threading.RLock()

    def __enter__(self) -> "EventFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def watch(self, event: Event) -> None:
        trial = {key: getattr(event.trial, key) for key in TRIAL}
        line = {**trial, "process": event.process, "phase": event.phase, "time": time.time()}
        if event.step:
            line |= {"event": "window", "step": event.step, "loss": event.loss,
                     "seconds": event.step_seconds, "window": event.window,
                     "devices_now": readings(event.samples)}
        else:
            line["event"] = "phase"
        self._write(line)
        self.inner.watch(event)

    def note(self, text: str) -> None:
        self._write({"event": "note", "text": text, "time": time.time()})
        self.inner.note(text)

    def done(self, outcome: Outcome, number: int, total: int) -> None:
        self._write({**_ended(outcome.row), "number": number, "total": total, "time": time.time()})
        self.inner.done(outcome, number, total)

    def end(self) -> None:
        self._remove()
        self.inner.end()

    def _remove(self) -> None:
        with self.lock:
            if self.file:
                self._write({"event": "end"})
                self.file.close()
                self.path.unlink(missing_ok=True)
                self.file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.lock:
            begun = self.path.parent.is_dir() and (self.folder / "campaign.json").is_file()
            if begun and not self.file:
                earlier = list(past(self.folder))
                self.file = self.path.open("w", encoding="utf-8")
                for each in (*earlier, self.first):
                    self._write(each)
            if self.file:
                self.file.write(json.dumps(plain(line), allow_nan=False) + "\n")
                self.file.flush()


def past(folder: Path) -> Iterator[Line]:
    """Return the events that a campaign's records hold; none if it has no readable record."""
    try:
        campaign = reader.read(folder)
    except (BadRecords, OSError):
        return
    trials = {trial["trial"]: {key: trial[key] for key in TRIAL} for trial in campaign.trials}
    title = (campaign.meta.get("suite") or {}).get("title") or folder.name
    yield {"event": "begin", "title": title}
    rows = campaign.processes.sort_values("order").to_dict("records")
    for number, row in enumerate(rows, 1):
        own = _of(campaign.windows, row)
        samples = _of(campaign.counters, row).to_dict("records")
        same = {**trials[row["trial"]], "process": row["process"]}
        for window in own.sort_values("window").to_dict("records"):
            timed = window["window"] + 1
            yield {"event": "window", **same, "phase": "timing" if timed > 0 else "warm-up",
                   "window": max(timed, 0), "step": window["last_step"], "loss": window["loss"],
                   "seconds": window["step_seconds"],
                   "devices_now": readings(_before(samples, window["stop"]))}
        yield {**_ended(row), "number": number, "total": len(rows)}


def _of(table: pd.DataFrame, row: Mapping[Any, Any]) -> pd.DataFrame:
    own: pd.DataFrame = table[(table["trial"] == row["trial"])
                              & (table["process"] == row["process"])]
    return own


def _before(samples: Sequence[dict[Any, Any]], moment: float) -> list[dict[Any, Any]]:
    """Return the samples of the seconds before a window ended, and of that moment."""
    return [row for row in samples if moment - RECENT <= row["seconds"] <= moment + 1]


def readings(samples: Sequence[Mapping[Any, Any]]) -> dict[str, Line]:
    """Return each GPU's newest readings, and the bytes a second of its last two totals."""
    found: dict[str, Line] = {}
    for device in sorted({row["device"] for row in samples if row["device"] != "host"}):
        own = [row for row in samples if row["device"] == device]
        found[device] = {key: row[key] for row in own for key in SHOWN if _is_number(row.get(key))}
        for key in TOTALS:
            known = [(row["seconds"], row[key]) for row in own if _is_number(row.get(key))]
            if len(known) > 1 and known[-1][0] > known[-2][0]:
                (began, first), (ended, last) = known[-2:]
                found[device][key + "_per_second"] = (last - first) / (ended - began)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _ended(row: Mapping[Any, Any]) -> Line:
    return {"event": "done", "trial": row["trial"], "process": row["process"],
            "status": row["status"], "reason": row["reason"], "check": row.get("check") or ""}


def plain(value: Any) -> Any:
    """Return a value as strict JSON can hold it: a number that is not finite becomes its name."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
