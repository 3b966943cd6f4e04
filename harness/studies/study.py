"""What `dlbench study gemm`, `conv` and `layers` share: a folder of records, workers, and the order and length of windows.

A study has points (what is computed) and each bench (a framework's worker) has candidates (ways to compute them). A process
walks through the points in an order shuffled anew; of a point, the candidates' windows are interleaved in random order. A point
counts once its rows stand in measurements.csv, so a study that was killed goes on where it stopped.
"""

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.records import manifest, study_reader
from harness import VERSION
from harness.campaign.campaign import choose_device, release_of
from harness.environments import recipes, store
from harness.environments.store import BuildFailed, Environment
from harness.errors import WrongUse
from harness.machine import hardware, preflight
from harness.studies.recorder import Records, open_records
from harness.workers.cores import THREAD_VARIABLES, cores
from harness.workers.launch import first_line
from harness.workers.worker import Failed, Unsupported, Worker

START_SECONDS, POINT_SECONDS = 300.0, 300.0  # limits of an answer
THREADS_BESIDE_GPU = 8  # only the reference computes there
DEATHS = 20  # points that fail whole in one process; more is a broken machine

Point = dict[str, Any]  # "point" is its name; the other keys are the study's


@dataclass(frozen=True)
class Effort:
    """How much is measured: processes, windows of a candidate, their length, and the operation that is timed only once."""

    processes: int = 3
    windows: int = 5
    window_seconds: float = 0.01
    once_seconds: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """Where a study runs: `device_kind` is cpu or cuda, `threads` those of a worker."""

    device_kind: str
    threads: int
    interpreters: Mapping[str, Path] = field(default_factory=dict)
    allow_dirty: bool = False


@dataclass(frozen=True)
class Bench:
    """One worker's share of a study: its module, and the points that it is asked for."""

    framework: str
    module: str
    points: Sequence[Point]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study made ready; `settings` are the words that asked for it, for its first page."""

    name: str
    benches: Sequence[Bench]
    effort: Effort
    settings: Mapping[str, Any]
    tolerance: Callable[[Point, str], float]  # the largest relative error against float64 with which a candidate may be timed


def place_of(device: str, threads: int | None, interpreters: Mapping[str, Path], allow_dirty: bool) -> Place:
    """Decide where a study runs, from the words of the command line; all cores where `threads` is not given, few beside a GPU."""
    kind, cores = choose_device(device, hardware.describe()), len(os.sched_getaffinity(0))
    return Place(kind, threads or (cores if kind == "cpu" else min(THREADS_BESIDE_GPU, cores)), interpreters, allow_dirty)


def run(study: Study, place: Place, folder: Path, resume: bool, note: Callable[[str], None]) -> None:
    """Measure a study into `folder`; `note` hears of its progress. Raises WrongUse where folder or machine is not fit for it."""
    if (folder / "study.json").exists() and not resume:
        raise WrongUse(f"{folder} holds a study already: go on with --resume, or name another folder with --out")
    described = hardware.describe()
    dirty = preflight.pass_gate(described, 1 if place.device_kind == "cuda" else 0, place.allow_dirty)
    ready = {bench.framework: _environment_or_reason(bench.framework, place, note) for bench in study.benches}
    page = {**_first_page(study, place, folder, described, dirty), "environments": {
        name: {key: value for key, value in found.to_json().items() if key not in ("interpreter", "variables")}
        for name, found in ready.items() if isinstance(found, Environment)}}
    points = {point["point"]: point for bench in study.benches for point in bench.points}
    records = open_records(folder, page, points)
    finished = study_reader.finished(folder)
    for process in range(study.effort.processes):
        for bench in study.benches:
            log = folder / "logs" / f"{bench.framework}-{process}.log"
            todo = [point for point in bench.points if (bench.framework, process, point["point"]) not in finished]
            begin = _starter(bench, ready[bench.framework], place, log, records)
            _run_process(study, process, replace(bench, points=todo), begin, records, note)
    records.update(finished=_now())


def environment_of(framework: str, place: Place, note: Callable[[str], None]) -> Environment:
    """Find or build the environment of a framework's default release, or describe the interpreter that was given for it.

    Raises Unsupported where the framework has none for this kind of device, Failed where it cannot be built."""
    kind: recipes.Device = "cuda" if place.device_kind == "cuda" else "cpu"
    interpreter = place.interpreters.get(framework)
    if interpreter:
        return store.existing(framework, interpreter, kind)
    release = release_of(framework, {}, kind)
    if reason := recipes.unsupported(framework, release, kind):
        raise Unsupported(reason)
    try:
        return store.build(framework, release, kind, note)
    except BuildFailed as failure:
        raise Failed("crashed", f"its environment could not be built: {first_line(failure)}") from None


def _environment_or_reason(framework: str, place: Place, note: Callable[[str], None]) -> Environment | Failed | Unsupported:
    try:
        return environment_of(framework, place, note)
    except (Failed, Unsupported) as reason:
        note(f"{framework}: {reason}")
        return reason


def _starter(bench: Bench, environment: Environment | Failed | Unsupported, place: Place, log: Path, records: Records
             ) -> Callable[[], Worker]:
    """A function that starts the bench's worker and opens its session, or raises what stands in the environment's place."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(place.threads))
    gpus = {"CUDA_VISIBLE_DEVICES": ""} if place.device_kind == "cpu" else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    pinned = ",".join(map(str, cores(place.threads))) if place.device_kind == "cpu" else ""

    def begin() -> Worker:
        if not isinstance(environment, Environment):
            raise environment
        variables = {**environment.variables, **threads, **gpus, **bench.variables}
        worker = Worker(environment.interpreter, bench.module, log, variables, pinned, container=environment.container)
        try:
            records.introduce(bench.framework, worker.ask("hello", START_SECONDS))
            worker.ask("open", START_SECONDS, device=place.device_kind, threads=place.threads)
        except BaseException:
            worker.end()
            raise
        return worker

    return begin


def _run_process(study: Study, process: int, bench: Bench, begin: Callable[[], Worker], records: Records,
                 note: Callable[[str], None]) -> None:
    """Measure a bench's points in one process; one that ends the worker is a failed row, and another worker goes on behind it.

    Another begins too behind a point of which every candidate failed, because what breaks a GPU's context breaks all that
    follows. Where a worker does not begin, or too many failed, each point that is left is a row that says so.
    """
    order = random.Random(study.effort.seed + process)
    waiting = list(bench.points)
    order.shuffle(waiting)
    told = {"bench": bench.framework, "process": process}
    deaths = 0
    while waiting:
        try:
            if deaths > DEATHS:
                raise Failed("crashed", f"given up, for {deaths} points before failed whole")
            started = begin()
        except (Failed, Unsupported) as refusal:
            records.append([{**told, "point": point["point"], **_refusal(refusal)} for point in waiting])
            return
        with started as worker:
            while waiting:
                point = waiting.pop()
                try:
                    rows = measure_point(worker, point, study, order)
                except (Failed, Unsupported) as failure:
                    rows = [_refusal(failure)]
                records.append([{**told, "point": point["point"], **row} for row in rows])
                if len(waiting) % 100 == 0:
                    note(f"{bench.framework}, process {process}: {len(bench.points) - len(waiting)} of {len(bench.points)} points")
                if rows and all(row["status"] == "failed" for row in rows):
                    deaths += 1
                    break


def _refusal(reason: Failed | Unsupported) -> dict[str, str]:
    return {"candidate": "all", "status": "failed" if isinstance(reason, Failed) else "unsupported", "reason": str(reason)}


def measure_point(worker: Any, point: Point, study: Study, order: random.Random) -> list[dict[str, Any]]:
    """Place a point, find each candidate's window by a pilot, time the windows in random order: a row a candidate.

    A candidate whose error passes the study's tolerance is `different` and not timed. One whose pilot takes `once_seconds` or
    more is timed by its pilot alone: one window of one step.
    """
    effort = study.effort
    answers = worker.ask("place", POINT_SECONDS, point=point)["candidates"]
    for name, answer in answers.items():
        limit = study.tolerance(point, name)
        if answer["status"] == "ok" and answer["error"] is not None and not answer["error"] <= limit:
            answer.update(status="different", reason=f"relative error {answer['error']:.2g} against float64, allowed {limit:.2g}")
    able = [name for name, answer in answers.items() if answer["status"] == "ok"]
    order.shuffle(able)
    pilots = dict(zip(able, _times(worker, [(name, 1) for name in able]), strict=True))
    repeated = [name for name in able if pilots[name] < effort.once_seconds]
    again = _times(worker, [(name, 1) for name in repeated])
    pilots.update({name: min(pilots[name], seconds) for name, seconds in zip(repeated, again, strict=True)})
    steps = {name: max(1, math.ceil(effort.window_seconds / pilots[name])) for name in repeated}
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
    return [{"candidate": name, **{key: value for key, value in answer.items() if value is not None}}
            for name, answer in answers.items()]


def _times(worker: Any, runs: Sequence[tuple[str, int]]) -> list[float]:
    if not runs:
        return []
    return [stop - start for start, stop in worker.ask("time", POINT_SECONDS, runs=runs)["windows"]]


def _first_page(study: Study, place: Place, folder: Path, described: Mapping[str, Any], dirty: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": study_reader.SCHEMA, "study": study.name, "name": folder.name, "started": _now(), "finished": None, "dlbench": VERSION,
        "git_commit": described["checkout"]["commit"], "git_dirty": described["checkout"]["dirty"],
        "git_commit_stated": described["checkout"]["stated"], "source_hash": manifest.source_hash(), "settings": dict(study.settings),
        "effort": asdict(study.effort), "seed": study.effort.seed, "device_kind": place.device_kind, "threads": place.threads,
        "machine": dict(described), "concerns": [concern.text for concern in hardware.concerns(dict(described))],
        "dirty": list(dirty),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
