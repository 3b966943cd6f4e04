"""Samples counters and sensors while a worker trains, stamped with the workers' clock.

Threads of the driver poll every 20 ms, and on each side of a timed window, when nothing trains.
Each source has its own threads: polled in turn, one late GPU cost the bytes of all four.
"""

import contextlib
import math
import queue
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import pynvml

from analysis.records.columns import EDGE
from harness.telemetry import amd
from harness.telemetry.agent import agents
from harness.telemetry.gpu import Gpu, opened
from harness.telemetry.host import Host

# Seconds between readings, by kind. A 32-bit PCIe counter can wrap within 68 ms on a link of
# generation 5 with 16 lanes, so `fast` ones must come sooner.
PERIODS = {"fast": 0.02, "slow": 0.5, "sampled": 0.02}
# Read on each side of a window; `own` never in between.
AT_WINDOWS = ("fast", "own")
# Between the edges of windows one sample in this many seconds is kept.
KEPT_SECONDS = 0.5
# A call into a driver that takes longer counts as hanging.
HANG_SECONDS = 5.0

Sample = dict[str, Any]
# Seconds of the clock -> columns of counters.csv.
Reading = Callable[[float], Sample]


class Source(Protocol):
    """A device to sample: its readings by kind, and the fuller ones at the edges of windows."""

    name: str
    readings: dict[str, Reading]
    edges: dict[str, Reading]

    @property
    def not_measured(self) -> list[str]: ...
    def restart(self) -> None: ...
    def describe(self) -> Sample: ...


class Sampler:
    """Samples `sources` for one process after another. Without sources it does nothing.

    Only the loops' threads call drivers, so a driver that hangs costs samples, not the campaign.
    `reasons` say what the whole campaign does not measure, and why.
    """

    def __init__(self, sources: Sequence[Source] = (), reasons: Sequence[str] = ()):
        self.sources = sources
        self.reasons = list(reasons)
        self.active: list[Source] = []
        self.samples: list[Sample] = []
        self.loops: list[tuple[Source, str, Loop]] = []
        # Threads of finished processes that may still wait for a driver.
        self.unanswered: list[tuple[Source, Loop]] = []

    @contextlib.contextmanager
    def recording(self, gpus: int, nodes: int = 1) -> Iterator[None]:
        """Record one process on the host and the first `gpus` GPUs until the block is left.

        With several `nodes`, the same of each other node too. A source that still owes an answer
        is left out: its late answer would enter these totals.
        """
        own = {"host", *(f"gpu{number}" for number in range(gpus))}
        names = own if nodes == 1 else {source.name for source in self.sources
                                        if source.name.rpartition("/")[2] in own}
        owing = {source.name for source in self._owing()}
        self.active = [source for source in self.sources if source.name in names - owing]
        self.samples = []
        try:
            yield
        finally:
            self._end()
            self._note_silence(names & owing, "no answer from its driver since an earlier process")

    @contextlib.contextmanager
    def around_window(self, timed: bool = True) -> Iterator[None]:
        """Poll just before and just after a timed window, outside the timed interval.

        Nothing of a warm-up window is counted, and two polls of a GPU take 50 ms.
        """
        if self.active and not self.loops:
            self._begin()
        if timed:
            self._poll_edge()
        yield
        if timed:
            self._poll_edge()

    def held_by(self, processes: Callable[[], Collection[int]]) -> int | None:
        """Return the most bytes that some processes held on one GPU, None where unknown."""
        # mypy keeps the protocol.
        gpus = [cast(Gpu, source).held for source in self.active if isinstance(source, Gpu)]
        numbers = processes() if gpus else ()
        totals = [sum(held.get(each, 0) for each in numbers) for held in gpus]
        return max(totals, default=0) or None

    def awaits_an_answer(self) -> bool:
        """Return whether a thread of a finished process still waits for a driver."""
        return bool(self._owing())

    def describe(self) -> Sample:
        """Describe for campaign.json what is sampled, and what is not measured and why."""
        missing = [reason for source in self.sources for reason in source.not_measured]
        return {"period_seconds": PERIODS, "not_measured": [*self.reasons, *missing],
                "sources": [source.describe() for source in self.sources]}

    def _begin(self) -> None:
        for source in self.active:
            source.restart()
            for kind, read in source.readings.items():
                poll = partial(self._poll, source.name, kind, read, self.samples)
                at_edges = EDGE if kind == "fast" else kind
                whole = source.edges.get(kind, read)
                poll_edge = partial(self._poll, source.name, at_edges, whole, self.samples)
                loop = Loop(poll, PERIODS.get(kind, math.inf), poll_edge)
                self.loops.append((source, kind, loop))
                loop.start()

    def _end(self) -> None:
        """End all loops and remember those that hang. Raises what one failed with."""
        loops = self.loops
        # First, because Ctrl-C may come at any time.
        self.unanswered += [(source, loop) for source, _, loop in loops]
        self.loops, self.active = [], []
        for _, _, loop in loops:
            loop.end()
        until = time.monotonic() + HANG_SECONDS
        late = {source.name for source, _, loop in loops if not loop.ended(until)}
        self._note_silence(late, "its driver does not answer")
        for _, _, loop in loops:
            if loop.fault:
                raise loop.fault

    def _owing(self) -> list[Source]:
        """Return the sources whose threads still run though no process is recorded."""
        started = [*self.unanswered, *((source, loop) for source, _, loop in self.loops)]
        self.unanswered = [pair for pair in started if pair[1].thread.is_alive()]
        return [source for source, _ in self.unanswered]

    def _note_silence(self, devices: set[str], why: str) -> None:
        """Add a row for each device that did not answer; it covers the time since the last edge."""
        row = {"kind": EDGE, "seconds": time.monotonic(), "broken": f"gpu: {why}"}
        self.samples += [{"device": device, **row} for device in sorted(devices)]

    def _poll(self, device: str, kind: str, read: Reading, samples: list[Sample]) -> None:
        seconds = time.monotonic()
        samples.append({"device": device, "kind": kind, "seconds": seconds, **read(seconds)})

    def _poll_edge(self) -> None:
        asked = [(loop, loop.poll_soon()) for _, kind, loop in self.loops if kind in AT_WINDOWS]
        until = time.monotonic() + HANG_SECONDS
        for loop, done in asked:
            loop.wait_for(done, until)


class Loop:
    """A thread that calls `poll` every `period` seconds.

    It calls `poll_edge` first, last and whenever it is asked to.
    """

    def __init__(self, poll: Callable[[], None], period: float,
                 poll_edge: Callable[[], None] | None = None):
        self.poll = poll
        self.poll_edge = poll_edge or poll
        self.period = period
        # None ends the loop.
        self.requests: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self.fault: Exception | None = None
        # The poll that did not come in time.
        self.missed: threading.Event | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def poll_soon(self) -> threading.Event:
        """Request a poll; the event is set after it."""
        done = threading.Event()
        if not self.missed:
            self.requests.put(done)
        return done

    def wait_for(self, done: threading.Event, until: float) -> None:
        """Wait for a requested poll until a monotonic time; wait once for a driver that hangs."""
        if self.missed or not self.thread.is_alive():
            return
        if not done.wait(max(0.0, until - time.monotonic())):
            self.missed = done

    def end(self) -> None:
        """Request a last poll and the end of the thread."""
        self.requests.put(None)

    def ended(self, until: float) -> bool:
        """Return whether the thread ended by then; does not wait again for a driver that hangs."""
        hangs = self.missed and not self.missed.is_set()
        if self.thread.ident is None:
            return True
        self.thread.join(0 if hangs else max(0.0, until - time.monotonic()))
        return not self.thread.is_alive()

    def _run(self) -> None:
        request: threading.Event | None = threading.Event()
        try:
            while request:
                began = time.monotonic()
                self.poll_edge()
                request.set()
                request = self._next(began)
            self.poll_edge()
        except Exception as fault:
            self.fault = fault
            if request:
                request.set()

    def _next(self, polled: float) -> threading.Event | None:
        """Poll once a period until a request comes. Missed periods are not made up for."""
        while True:
            try:
                left = polled + self.period - time.monotonic()
                return self.requests.get(timeout=None if math.isinf(left) else max(0.0, left))
            except queue.Empty:
                polled = time.monotonic()
                self.poll()


@contextlib.contextmanager
def open_sampler(gpus: int, visible: str | None, others: Sequence[str] = ()
                 ) -> Iterator[Sampler]:
    """Open a campaign's sampler: the host and the first `gpus` GPUs in CUDA_VISIBLE_DEVICES.

    On `others`, further nodes of the campaign, an agent reads the same now and then.
    """
    sampler = Sampler([Host()])
    with contextlib.ExitStack() as stack:
        found: list[Any] = []
        reasons = []
        try:
            if gpus:
                found = stack.enter_context(opened(gpus, visible, sampler.awaits_an_answer))
        except pynvml.NVMLError as error:
            found = stack.enter_context(amd.opened(gpus))
            reasons = [] if found else [
                f"traffic and energy of GPUs: NVML does not answer ({error})"]
        if len(found) < gpus and not reasons:
            reasons = [f"traffic and energy of {gpus - len(found)} GPUs: NVML cannot find them "
                       f"(CUDA_VISIBLE_DEVICES={visible}; a MIG slice has no counters)"]
        sampler.sources = [*sampler.sources, *found,
                           *stack.enter_context(agents(others, gpus))]
        sampler.reasons += reasons
        yield sampler


def kept(samples: Sequence[Sample], windows: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Thin a process's samples to what its windows need, in order of device, kind and time.

    Kept are the samples on both sides of every edge of a timed window, every slow one, and one in
    KEPT_SECONDS. A kept sample takes over event reasons and breaks of those dropped before it.
    """
    if not windows:
        return []
    timed = [window for window in windows if window["window"] >= 0]
    edges = [window[edge] for window in timed for edge in ("start", "stop")]
    ends = [windows[0]["start"], windows[-1]["stop"]]
    rows = []
    for device, kind in dict.fromkeys((sample["device"], sample["kind"]) for sample in samples):
        own = [sample for sample in samples if (sample["device"], sample["kind"]) == (device, kind)]
        own.sort(key=lambda sample: sample["seconds"])
        rows += _thin(own, ends, edges, 0.0 if kind == "slow" else KEPT_SECONDS)
    return rows


def _thin(samples: list[Sample], ends: list[float], edges: list[float],
          spacing: float) -> list[Sample]:
    times = [sample["seconds"] for sample in samples]
    begin, _ = _beside(times, ends[0])
    _, end = _beside(times, ends[1])
    wanted = {begin, end, *(number for edge in edges for number in _beside(times, edge))}
    rows: list[Sample] = []
    reasons, broken = 0, []
    for number in range(begin, end + 1):
        sample = samples[number]
        reasons |= sample.get("event_reasons") or 0
        broken += [sample["broken"]] if sample.get("broken") else []
        if number in wanted or sample["seconds"] - rows[-1]["seconds"] >= spacing:
            whole = {**sample, "event_reasons": reasons or sample.get("event_reasons"),
                     "broken": "; ".join(dict.fromkeys(broken))}
            rows.append({key: round(value, 5) if isinstance(value, float) else value
                         for key, value in whole.items()})
            reasons, broken = 0, []
    return rows


def _beside(times: list[float], moment: float) -> tuple[int, int]:
    """Return the indices of the samples just before and just after a moment."""
    before, after = bisect_right(times, moment) - 1, bisect_left(times, moment)
    return max(before, 0), min(after, len(times) - 1)
