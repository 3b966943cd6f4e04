"""Samples counters and sensors while a worker trains: threads of the driver poll the sources, stamped with the workers' clock.

Polls run every 20 ms, and once more on each side of every window, when nothing trains: so a window's edges are known to the
millisecond. Each source has threads of its own: of four GPUs in turn, one that answered late cost the bytes of all. `kept` thins
the samples of a process to what its windows need. A source is a `Host` or a `Gpu`.
"""

import contextlib
import queue
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pynvml

from analysis.records.reader import EDGE
from harness.telemetry.gpu import opened
from harness.telemetry.host import Host

# Of `fast` readings: a 32-bit PCIe counter can wrap within 68 ms on a link of generation 5 with 16 lanes.
PERIODS = {"fast": 0.02, "slow": 0.5, "sampled": 0.02}  # seconds, by kind of reading; `sampled` ones take longer than that
KEPT_SECONDS = 0.5  # between the edges of windows; so a timed window of as much leaves five rows of a GPU
HANG_SECONDS = 5.0  # how long a call into a driver may take before it counts as hanging

Sample = dict[str, Any]
Reading = Callable[[float], Sample]  # the clock's seconds -> columns of counters.csv


class Source(Protocol):
    """Something that can be sampled: its readings by kind, the whole ones in place of some at edges, and what it cannot tell."""

    name: str
    readings: dict[str, Reading]
    edges: dict[str, Reading]

    @property
    def not_measured(self) -> list[str]: ...
    def restart(self) -> None: ...
    def describe(self) -> Sample: ...


class Sampler:
    """Samples `sources` of one process after another; without sources it does nothing, at no cost.

    Only the loops' threads ask devices, so that a driver that hangs costs samples and not the campaign.
    """

    def __init__(self, sources: Sequence[Source] = (), reasons: Sequence[str] = (), clock: Callable[[], float] = time.monotonic):
        self.sources = sources
        self.reasons = list(reasons)  # why something is not measured in the whole campaign
        self.clock = clock
        self.active: list[Source] = []
        self.samples: list[Sample] = []
        self.loops: list[tuple[Source, str, Loop]] = []  # by kind of reading
        self.unanswered: list[tuple[Source, Loop]] = []  # of processes that are over; their threads may still wait for a driver

    @contextlib.contextmanager
    def recording(self, gpus: int) -> Iterator[None]:
        """Record one process on the host and the first `gpus` GPUs, from its first window on until the block is left.

        A source that still owes an earlier process an answer is left out, for that answer would go into this one's totals.
        """
        names = {"host", *(f"gpu{number}" for number in range(gpus))}
        owing = {source.name for source in self._owing()}
        self.active = [source for source in self.sources if source.name in names - owing]
        self.samples = []
        try:
            yield
        finally:
            self._end()
            self._note_silence(names & owing, "its driver has not answered since an earlier process")

    @contextlib.contextmanager
    def around_window(self) -> Iterator[None]:
        """Poll just before and just after a window, outside of what is timed."""
        if self.active and not self.loops:
            self._begin()
        self._poll_edge()
        yield
        self._poll_edge()

    def awaits_an_answer(self) -> bool:
        """Say whether a thread still asks a driver though its process is over."""
        return bool(self._owing())

    def describe(self) -> Sample:
        """Say for campaign.json how this campaign is sampled and what is not measured in any of its rows, and why."""
        return {"period_seconds": PERIODS,
                "sources": [source.describe() for source in self.sources],
                "not_measured": [*self.reasons, *(reason for source in self.sources for reason in source.not_measured)]}

    def _begin(self) -> None:
        for source in self.active:
            source.restart()
            for kind, read in source.readings.items():
                poll = partial(self._poll, source.name, kind, read, self.samples)
                at_edges = EDGE if kind == "fast" else kind
                poll_edge = partial(self._poll, source.name, at_edges, source.edges.get(kind, read), self.samples)
                self.loops.append((source, kind, Loop(poll, PERIODS[kind], self.clock, poll_edge)))
                self.loops[-1][-1].start()

    def _end(self) -> None:
        """End all loops, and remember those that do not end in time; raises what one failed with, which is a fault of ours."""
        loops = self.loops
        self.unanswered += [(source, loop) for source, _, loop in loops]  # first: Ctrl-C may come at any time
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
        """Sources of which threads live on though no process is recorded: Ctrl-C leaves some in `loops`."""
        started = [*self.unanswered, *((source, loop) for source, _, loop in self.loops)]
        self.unanswered = [(source, loop) for source, loop in started if loop.thread.is_alive()]
        return [source for source, _ in self.unanswered]

    def _note_silence(self, devices: set[str], why: str) -> None:
        """Say at a process's end which devices told nothing: such a row speaks for all the time since the edge before it."""
        seconds = self.clock()
        for device in sorted(devices):
            self.samples.append({"device": device, "kind": EDGE, "seconds": seconds, "broken": f"gpu: {why}"})

    def _poll(self, device: str, kind: str, read: Reading, samples: list[Sample]) -> None:
        seconds = self.clock()
        samples.append({"device": device, "kind": kind, "seconds": seconds, **read(seconds)})

    def _poll_edge(self) -> None:
        asked = [(loop, loop.poll_soon()) for _, kind, loop in self.loops if kind == "fast"]
        until = time.monotonic() + HANG_SECONDS
        for loop, done in asked:
            loop.wait_for(done, until)


class Loop:
    """A thread that polls at once, then every `period` seconds and whenever it is asked to, and a last time as it ends.

    `poll_edge` stands for `poll` at once, when asked and at last.
    """

    def __init__(self, poll: Callable[[], None], period: float, clock: Callable[[], float],
                 poll_edge: Callable[[], None] | None = None):
        self.poll = poll
        self.poll_edge = poll_edge or poll
        self.period = period
        self.clock = clock
        self.requests: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()  # None ends the loop
        self.fault: Exception | None = None
        self.missed: threading.Event | None = None  # the poll that did not come in time
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; not before somebody knows it, who can wait for its end."""
        self.thread.start()

    def poll_soon(self) -> threading.Event:
        """Have it poll; the event is set once it has."""
        done = threading.Event()
        if not self.missed:
            self.requests.put(done)
        return done

    def wait_for(self, done: threading.Event, until: float) -> None:
        """Wait for a poll that was asked for, until a moment of the monotonic clock; once at most for a driver that hangs."""
        if not self.missed and self.thread.is_alive() and not done.wait(max(0.0, until - time.monotonic())):
            self.missed = done

    def end(self) -> None:
        """Have it poll a last time and end."""
        self.requests.put(None)

    def ended(self, until: float) -> bool:
        """Wait for its end until then, not again for a driver that still hangs; says whether it came."""
        hangs = self.missed and not self.missed.is_set()
        if self.thread.ident is None:  # never started
            return True
        self.thread.join(0 if hangs else max(0.0, until - time.monotonic()))
        return not self.thread.is_alive()

    def _run(self) -> None:
        request: threading.Event | None = threading.Event()
        try:
            while request:
                began = self.clock()
                self.poll_edge()
                request.set()
                request = self._next(began)
            self.poll_edge()
        except Exception as fault:
            self.fault = fault
            if request:
                request.set()

    def _next(self, polled: float) -> threading.Event | None:
        """Poll a period after each poll, of which the last began at `polled`, until asked to, or to end; no beat is made up for."""
        while True:
            try:
                return self.requests.get(timeout=max(0.0, polled + self.period - self.clock()))
            except queue.Empty:
                polled = self.clock()
                self.poll()


@contextlib.contextmanager
def open_sampler(gpus: int, visible: str | None) -> Iterator[Sampler]:
    """Open the sampler of a campaign: the host, and the first `gpus` GPUs that CUDA_VISIBLE_DEVICES (`visible`) leaves."""
    sampler = Sampler([Host()])
    with contextlib.ExitStack() as stack:
        found: list[Any] = []
        reasons = []
        try:
            found = stack.enter_context(opened(gpus, visible, sampler.awaits_an_answer)) if gpus else []
        except pynvml.NVMLError as error:
            reasons = [f"traffic and energy of GPUs: NVML does not answer ({error})"]
        if len(found) < gpus and not reasons:
            reasons = [f"traffic and energy of {gpus - len(found)} GPUs: NVML cannot find them "
                       f"(CUDA_VISIBLE_DEVICES={visible}; a MIG slice has no counters)"]
        sampler.sources = [*sampler.sources, *found]
        sampler.reasons += reasons
        yield sampler


def kept(samples: Sequence[Sample], windows: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Thin a process's samples to what its windows need, in order of device, kind and time.

    Kept are samples on both sides of every edge of a timed window, every slow one, and one in KEPT_SECONDS besides, from just
    before the first window to just after the last. Event reasons and breaks of dropped samples go over to the next one kept.
    """
    if not windows:
        return []
    edges = [window[edge] for window in windows if window["window"] >= 0 for edge in ("start", "stop")]
    ends = [windows[0]["start"], windows[-1]["stop"]]
    rows = []
    for device, kind in dict.fromkeys((sample["device"], sample["kind"]) for sample in samples):
        own = [sample for sample in samples if (sample["device"], sample["kind"]) == (device, kind)]
        rows += _thin(sorted(own, key=lambda sample: sample["seconds"]), ends, edges, 0.0 if kind == "slow" else KEPT_SECONDS)
    return rows


def _thin(samples: list[Sample], ends: list[float], edges: list[float], spacing: float) -> list[Sample]:
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
            whole = {**sample, "event_reasons": reasons or sample.get("event_reasons"), "broken": "; ".join(dict.fromkeys(broken))}
            rows.append({key: round(value, 5) if isinstance(value, float) else value for key, value in whole.items()})
            reasons, broken = 0, []
    return rows


def _beside(times: list[float], moment: float) -> tuple[int, int]:
    """The last sample not after a moment and the first not before it; the outermost where there is none."""
    return max(bisect_right(times, moment) - 1, 0), min(bisect_left(times, moment), len(times) - 1)
