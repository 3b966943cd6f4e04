"""The engine of the studies of operations: a campaign whose trials are operations.

A study has points (what is computed); each bench (a framework's worker) has candidates (ways to
compute a point). A process visits the points in a new random order. At each point, the windows of
the candidates are interleaved in random order. A point is finished once its rows stand in
measurements.csv, so a study that was killed continues with the next point.
"""

import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.records import study_reader
from analysis.traces.kernels import shorten
from harness.campaign import campaign
from harness.campaign.events import Listener
from harness.campaign.process import now
from harness.campaign.recorder import refuse_elsewhere
from harness.campaign.session import Plan, Session
from harness.errors import WrongUse
from harness.machine.preflight import pass_gate
from harness.plan.suite import Suite
from harness.records import lock
from harness.studies.recorder import StudyRecorder, open_study
from harness.validation import did_you_mean, validate
from harness.workers.worker import Failed, Unsupported, Worker
from runners.resources import THREAD_VARIABLES

# Limits of an answer.
START_SECONDS, POINT_SECONDS = 300.0, 300.0
# Beside a GPU only the reference computes on the CPU.
THREADS_BESIDE_GPU = 8
# Points that may fail as a whole in one process; more means a broken machine.
DEATHS = 20
DEVICES = ("auto", "cpu", "cuda")
# Opens the place of kernels that could not be traced.
NOT_SEEN = "not seen"

# The key "point" is its name; the study defines the others.
Point = dict[str, Any]
# A worker's answer about each candidate of a point, by name.
Answers = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Effort:
    """How much is measured. An operation of `once_seconds` or more is timed only once."""

    processes: int = 3
    windows: int = 5
    window_seconds: float = 0.01
    once_seconds: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """Where a study runs: `plan` has a trial for each framework; `threads` are a worker's."""

    plan: Plan
    threads: int

    @property
    def device_kind(self) -> str:
        return self.plan.device_kind


@dataclass(frozen=True)
class Bench:
    """One framework's share of a study: the worker's module and the points it computes."""

    framework: str
    module: str
    points: Sequence[Point]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """What to measure. `settings` are the command's options, for the record."""

    name: str
    benches: Sequence[Bench]
    effort: Effort
    settings: Mapping[str, Any]
    # The largest relative error against float64 with which a candidate is timed.
    tolerance: Callable[[Point, str], float]
    # Says what is wrong with the kernels that a bench's candidate called; None: nothing is traced.
    called: Callable[[str, str, Sequence[str]], str] | None = None
    # Makes what all workers need, in the open session; returns what study.json keeps of it.
    prepare: Callable[[Session], Mapping[str, Any]] | None = None
    # Says what is wrong with the answers of a point's candidates, by name, instead of `tolerance`.
    faults: Callable[[Point, Answers], Mapping[str, str]] | None = None


def plan(frameworks: Iterable[str], device: str, interpreters: Mapping[str, Path],
         allow_dirty: bool = False, **keys: Any) -> Plan:
    """Plan a trial for each framework, as a campaign does; `keys` are further keys of a suite.

    A trial states its device and threads, or why it cannot run. Its network is not trained.
    """
    known([device], DEVICES, "--device")
    wanted = {"frameworks": list(frameworks), "networks": ["tiny_fcn"], "device": device,
              "data": "device", "interpreters": dict(interpreters), "telemetry": False, **keys}
    return campaign.prepare(validate(wanted, Suite, "dlbench study"), "", allow_dirty)


def place_of(planned: Plan, threads: int | None) -> Place:
    """Decide how a planned study runs. By default it uses all cores, or a few beside a GPU."""
    # A point states its own precision, so the workers get no variable that fixes it.
    trials = [replace(trial, precision="") for trial in planned.trials]
    cores = len(os.sched_getaffinity(0))
    most = cores if planned.device_kind == "cpu" else min(THREADS_BESIDE_GPU, cores)
    return Place(replace(planned, trials=trials), threads or most)


def known(chosen: Iterable[str], names: Iterable[str], option: str) -> list[str]:
    """Return what was chosen. Raises WrongUse with the closest name if one is unknown."""
    chosen, names = list(chosen), list(names)
    for name in chosen:
        if name not in names:
            raise WrongUse(f"{option}: unknown {name}{did_you_mean(name, names)}")
    return chosen


def run(study: Study, place: Place, folder: Path, resume: bool, listener: Listener) -> None:
    """Measure a study into `folder`; `listener` hears of its progress.

    Raises WrongUse, before anything starts, if the folder or the machine is not fit for it.
    """
    if os.path.lexists(folder / "study.json") and not resume:
        raise WrongUse(f"{folder} holds a study already: go on with --resume, "
                       "or name another folder with --out")
    points = {point["point"]: point for bench in study.benches for point in bench.points}
    with lock.held(folder):
        dirty = pass_gate(place.plan.machine, place.plan.gpus, place.plan.allow_dirty)
        with Session.open(place.plan, listener, folder / "logs") as session:
            page = {**first_page(study, place, folder, session), "dirty": dirty}
            recorder = open_study(folder, page, points)
            refuse_elsewhere(folder / "study.json", recorder.meta(), page)
            if study.prepare:
                recorder.update(prepared=study.prepare(session))
            _run_processes(study, place, session, recorder)
        recorder.update(finished=now())


def _run_processes(study: Study, place: Place, session: Session, recorder: StudyRecorder) -> None:
    finished = study_reader.finished(recorder.folder)
    for process in range(study.effort.processes):
        for bench in study.benches:
            todo = [point for point in bench.points
                    if (bench.framework, process, point["point"]) not in finished]
            begin = partial(_worker, bench, process, place, session, recorder)
            _run_process(study, process, replace(bench, points=todo), begin, recorder,
                         session.listener.note)


def first_page(study: Study, place: Place, folder: Path, session: Session) -> dict[str, Any]:
    """Return what study.json opens with: a campaign's first page, and what the study measures."""
    page = campaign.first_page(place.plan, folder, session.environments)
    for key in ("suite", "suite_file", "trials", "data_sets"):
        del page[key]
    environments = {lock["framework"]: lock for lock in page["environments"].values()}
    return {**page, "study": study.name, "settings": dict(study.settings),
            "effort": asdict(study.effort), "seed": study.effort.seed,
            "device_kind": place.device_kind, "threads": place.threads,
            "environments": environments}


@contextmanager
def _worker(bench: Bench, process: int, place: Place, session: Session, recorder: StudyRecorder
            ) -> Iterator[Worker]:
    """Start a bench's worker and open it. Raises Failed or Unsupported if it cannot start."""
    [trial] = [each for each in place.plan.trials if each.framework == bench.framework]
    if trial.status == "unsupported":
        raise Unsupported(trial.reason)
    variables = {**dict.fromkeys(THREAD_VARIABLES, str(place.threads)), **bench.variables}
    log = session.logs / f"{bench.framework}-{process}.log"
    worker = session.start(trial, log, f"{bench.module}:Bench", variables)
    with session.live.holding(worker), worker:
        recorder.introduce(bench.framework, worker.ask("hello", START_SECONDS))
        worker.ask("open", START_SECONDS, device=place.device_kind, threads=place.threads)
        yield worker


def _run_process(study: Study, process: int, bench: Bench,
                 begin: Callable[[], AbstractContextManager[Worker]], recorder: StudyRecorder,
                 note: Callable[[str], None]) -> None:
    """Measure a bench's points in one process.

    A point that ends the worker, or of which every candidate fails, is a failed row; the next point
    gets a new worker, because a broken GPU context breaks everything after it. If a worker cannot
    start, or too many points failed, every remaining point is a row with that reason.
    """
    order = random.Random(study.effort.seed + process)
    waiting, total = list(bench.points), len(bench.points)
    order.shuffle(waiting)
    row = {"bench": bench.framework, "process": process}
    deaths = 0
    while waiting:
        try:
            if deaths > DEATHS:
                raise Failed("crashed", f"given up after {deaths} points that failed as a whole")
            with begin() as worker:
                while waiting:
                    point = waiting.pop()
                    try:
                        found = measure_point(worker, point, study, order)
                        if study.called and process == 0:
                            see_what_was_called(worker, bench.framework, found, study.called)
                    except (Failed, Unsupported) as failure:
                        found = [{"candidate": "all", **refusal(failure)}]
                    recorder.append([{**row, "point": point["point"], **each} for each in found])
                    if len(waiting) % 100 == 0:
                        note(f"{bench.framework}, process {process}: {total - len(waiting)} of "
                             f"{total} points")
                    if found and all(each["status"] == "failed" for each in found):
                        deaths += 1
                        break
        except (Failed, Unsupported) as reason:
            recorder.append([{**row, "point": point["point"], "candidate": "all",
                              **refusal(reason)} for point in waiting])
            return


def refusal(reason: Failed | Unsupported) -> dict[str, str]:
    """Return the columns of a row that was not measured."""
    status = "failed" if isinstance(reason, Failed) else "unsupported"
    return {"status": status, "reason": str(reason)}


def measure_point(worker: Any, point: Point, study: Study, order: random.Random
                  ) -> list[dict[str, Any]]:
    """Place a point, choose each candidate's steps by a pilot, and time windows in random order.

    Return a row for each candidate. A candidate whose error exceeds the study's tolerance is
    `different` and not timed. A candidate whose pilot takes `once_seconds` or more has its pilot as
    its only window.
    """
    effort = study.effort
    answers = worker.ask("place", POINT_SECONDS, point=point)["candidates"]
    for name, reason in (study.faults or partial(_intolerable, study))(point, answers).items():
        if answers[name]["status"] == "ok":
            answers[name].update(status="different", reason=reason)
    able = [name for name, answer in answers.items() if answer["status"] == "ok"]
    order.shuffle(able)
    pilots = dict(zip(able, _times(worker, [(name, 1) for name in able]), strict=True))
    repeated = [name for name in able if pilots[name] < effort.once_seconds]
    again = _times(worker, [(name, 1) for name in repeated])
    steps = {name: max(1, math.ceil(effort.window_seconds / min(pilots[name], seconds)))
             for name, seconds in zip(repeated, again, strict=True)}
    runs = [(name, steps[name]) for name in repeated for _ in range(effort.windows)]
    order.shuffle(runs)
    seconds = {name: [] if name in steps else [pilots[name]] for name in able}
    for (name, count), window in zip(runs, _times(worker, runs), strict=True):
        seconds[name].append(window / count)
    for answer in answers.values():
        if answer.get("error") is not None:
            answer["error"] = f"{answer['error']:.3g}"  # a sweep has a hundred thousand rows
    for name in able:
        each = (f"{step / answers[name]['operations']:.5g}" for step in seconds[name])
        answers[name].update(steps=steps.get(name, 1), seconds=" ".join(each))
    return [{"candidate": name, **{key: value for key, value in answer.items()
                                   if value is not None}} for name, answer in answers.items()]


def _intolerable(study: Study, point: Point, answers: Answers) -> dict[str, str]:
    """Return the candidates whose error exceeds the study's tolerance, each with the reason."""
    found = {}
    for name, answer in answers.items():
        limit, error = study.tolerance(point, name), answer.get("error")
        # Not `>`, because a NaN is different too.
        if error is not None and not error <= limit:
            found[name] = f"relative error {error:.2g} against float64, allowed {limit:.2g}"
    return found


def see_what_was_called(worker: Any, bench: str, rows: Sequence[dict[str, Any]],
                        fault: Callable[[str, str, Sequence[str]], str]) -> None:
    """Ask which kernels or operators the timed candidates call, and write them into `rows`.

    The windows have been timed, because a trace slows what follows. A candidate that calls what is
    another's is `different`, and its times are dropped.
    """
    timed = [row for row in rows if row["status"] == "ok"]
    try:
        called = worker.ask("called", POINT_SECONDS, names=[row["candidate"] for row in timed])
    except (Failed, Unsupported) as refusal:
        if isinstance(refusal, Failed) and not refusal.answered:
            raise
        for row in timed:
            row["kernels"] = f"{NOT_SEEN}: {refusal}"
        return
    for row in timed:
        names = [shorten(name) for name in called["called"][row["candidate"]]]
        row["kernels"] = "; ".join(dict.fromkeys(names))
        if reason := fault(bench, row["candidate"], names):
            row.update(status="different", reason=reason)
            del row["seconds"], row["steps"]


def _times(worker: Any, runs: Sequence[tuple[str, int]]) -> list[float]:
    if not runs:
        return []
    windows = worker.ask("time", POINT_SECONDS, runs=runs)["windows"]
    return [stop - start for start, stop in windows]
