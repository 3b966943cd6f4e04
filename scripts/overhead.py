"""What dlbench costs: its step against the same network in a loop written by hand.

Both sides are processes of one interpreter with the same threads, cores, mini-batch size and number
of batches on the device, started in random order. dlbench's side is a real worker. The script also
prints how much of a core the driver used while the worker was timed. Run it where dlbench is
installed: .venv/bin/python scripts/overhead.py
"""

import argparse
import contextlib
import csv
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import networks
from analysis.statistics import bootstrap
from harness.campaign.campaign import prepare
from harness.campaign.session import Plan, Session
from harness.cli.verify import Printer
from harness.data import arrays
from harness.environments.interpreters import named
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.plan.planner import Trial, execution_order
from harness.plan.suite import Suite
from harness.validation import did_you_mean, validate
from harness.workers.cores import cores
from harness.workers.launch import variables
from harness.workers.worker import Failed, Unsupported

LOOPS = Path(__file__).resolve().parent / "overhead_loops"
FRAMEWORKS = ("pytorch", "tensorflow")
SMALL_BATCHES = {"fcn5": 64, "resnet50": 2, "lstm32": 8}  # overhead shows most beside a short step
COLUMNS = ("framework", "release", "network", "batch", "device", "threads", "side", "process",
           "window", "steps", "step_seconds", "driver_share")
SINGLE_STEPS = 3
WINDOW_SECONDS = 0.3
LIMIT_SECONDS = 600

TimedRun = Callable[[int], float]  # steps -> seconds


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when every process was timed, 1 when one failed, 2 for wrong use."""
    options = _arguments(words)
    console = Console()
    try:
        plan = _plan(options)
        with Session.open(plan, Printer(console)) as session:
            rows, failures = measure(plan.trials, session)
        if options.out:
            write(rows, options.out)
    except (WrongUse, networks.UnknownNetwork) as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    console.print(table(summarise(rows)))
    shares = [row["driver_share"] for row in rows if row["side"] == "dlbench"]
    if shares:
        console.print(f"While its worker was timed the driver used {100 * np.median(shares):.2g} % "
                      f"of a core (median of {len(shares)} windows; at most "
                      f"{100 * max(shares):.2g} %).", highlight=False)
    return 1 if failures else 0


def measure(trials: list[Trial], session: Session) -> tuple[list[dict[str, Any]], int]:
    """Run both sides of every trial in random order; return a row a window, and the failures."""
    suite, note = session.suite, session.listener.note
    refused = [trial for trial in trials if trial.status != "planned"]
    for trial in refused:
        note(f"{trial.trial}: {trial.status}: {trial.reason}")
    generator = random.Random(suite.seed)
    rows: list[dict[str, Any]] = []
    failures = len(refused)
    for trial, process in execution_order(trials, suite.processes, suite.seed):
        for name, side in generator.sample(sorted(SIDES.items()), len(SIDES)):
            log = session.logs / f"{trial.trial}-{name}-{process}.log"
            try:
                with side(session, trial, log) as timed_run:
                    found = take_windows(timed_run, suite.windows, suite.window_seconds)
            except (Failed, Unsupported) as error:
                note(f"{trial.trial} {name} process {process}: {error}")
                failures += 1
                continue
            step = float(np.median([row["step_seconds"] for row in found]))
            note(f"{trial.trial} {name} process {process}: {1000 * step:.4g} ms a step")
            same = {**_names(trial), "side": name, "process": process}
            rows += [{**same, **row} for row in found]
    return rows, failures


def take_windows(timed_run: TimedRun, windows: int, window_seconds: float) -> list[dict[str, Any]]:
    """Warm up, double until a window is long enough, then time windows; return a row for each."""
    for _ in range(SINGLE_STEPS):
        last = timed_run(1)
    steps = 1
    while last < window_seconds:
        steps *= 2
        last = timed_run(steps)
    rows = []
    for window in range(windows):
        busy, began = time.process_time(), time.monotonic()
        seconds = timed_run(steps)
        share = (time.process_time() - busy) / (time.monotonic() - began)
        rows.append({"window": window, "steps": steps, "step_seconds": seconds / steps,
                     "driver_share": share})
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a case: median step seconds of both sides, and their ratio with its interval.

    A case without a process of one side has no row.
    """
    keys = ("framework", "release", "network", "batch", "device", "threads")
    found = []
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        mine = [row for row in rows if tuple(row[key] for key in keys) == case]
        ours, bare = _times(mine, "dlbench"), _times(mine, "bare")
        if ours and bare:
            ratio = bootstrap.ratio(ours, bare)
            found.append({**dict(zip(keys, case, strict=True)),
                          "bare_seconds": bootstrap.estimate(bare).value,
                          "dlbench_seconds": bootstrap.estimate(ours).value,
                          "ratio": ratio.value, "low": ratio.low,
                          "high": ratio.high, "processes": ratio.processes})
    return found


def table(found: Sequence[dict[str, Any]]) -> Table:
    """Lay out what `summarise` returns."""
    releases = dict.fromkeys(f"{row['framework']} {row['release']}" for row in found)
    where = dict.fromkeys(f"{row['device']} with {row['threads']} threads" for row in found)
    shown = Table("framework", "network", "batch", "bare", "dlbench", "ratio", "95 % interval",
                  box=box.SIMPLE_HEAD,
                  title="A step of dlbench by a step of a loop written by hand",
                  caption=f"milliseconds a step; {', '.join([*where, *releases])}")
    for column in shown.columns[2:6]:
        column.justify = "right"
    for row in found:
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        if row["processes"] < bootstrap.MINIMUM_PROCESSES:
            interval = f"none: {row['processes']} of {bootstrap.MINIMUM_PROCESSES} processes"
        times = [f"{1000 * row[side]:.4g}" for side in ("bare_seconds", "dlbench_seconds")]
        shown.add_row(row["framework"], row["network"], str(row["batch"]), *times,
                      f"{row['ratio']:.3f}", interval)
    return shown


def write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a row a window, from which the table can be made again."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise WrongUse(f"--out {path}: cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def dlbench_side(session: Session, trial: Trial, log: Path) -> Iterator[TimedRun]:
    """A worker as `dlbench run` starts it, without the check; runners.protocol times its steps."""
    with session.start(trial, log) as worker:
        worker.ask("hello", LIMIT_SECONDS)
        session.build(worker, trial)
        session.feed(worker, trial)

        def timed_run(steps: int) -> float:
            answer = worker.ask("run", LIMIT_SECONDS, steps=steps)
            return float(answer["stop"] - answer["start"])

        yield timed_run


@contextlib.contextmanager
def bare_side(session: Session, trial: Trial, log: Path) -> Iterator[TimedRun]:
    """The loop written by hand, in its own process; refused for another number of parameters."""
    network, environment = networks.get(trial.network), session.environment(trial)
    assert isinstance(environment, Environment)
    pinned = cores(trial.threads) if trial.device_kind == "cpu" else []
    command = [str(environment.interpreter), str(LOOPS / f"{trial.framework}_loops.py"),
               "--network", trial.network, "--batch", str(trial.batch),
               "--batches", str(arrays.ring_length(network, trial.batch)),
               "--device", trial.device_kind, "--threads", str(trial.threads),
               "--cores", *map(str, pinned)]
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "PYTHONHOME")}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        env={**inherited, **variables(environment, trial), "PYTHONNOUSERSITE": "1"},
    ) as process:
        try:
            parameters = int(_answer(process, log))
            if parameters != network.parameter_count:
                raise Failed("different", f"the loop written by hand trains {parameters:,} "
                             f"parameters, {network.name} has {network.parameter_count:,}")

            def timed_run(steps: int) -> float:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # its missing answer says that it died
                    os.write(process.stdin.fileno(), f"{steps}\n".encode())
                return _answer(process, log)

            yield timed_run
        finally:
            process.kill()


SIDES = {"bare": bare_side, "dlbench": dlbench_side}


def _answer(process: "subprocess.Popen[str]", log: Path) -> float:
    """Read one number; a process that says nothing for LIMIT_SECONDS is ended."""
    assert process.stdout is not None
    timer = threading.Timer(LIMIT_SECONDS, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
        return float(line)
    except ValueError:
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise Failed("crashed", f"the loop written by hand answered {line.strip()[:100]!r}; "
                                f"log: {tail}") from None
    finally:
        timer.cancel()


def _plan(options: argparse.Namespace) -> Plan:
    for what, chosen, known in (("frameworks", options.frameworks, FRAMEWORKS),
                                ("networks", options.networks, SMALL_BATCHES)):
        for name in chosen:
            if name.partition("==")[0] not in known:
                raise WrongUse(f"--{what} {name}: there is no loop written by hand for it"
                               f"{did_you_mean(name, known)}")
    wanted = {
        "frameworks": options.frameworks, "device": options.device, "data": "device",
        "processes": options.processes, "windows": options.windows,
        "window_seconds": WINDOW_SECONDS, "telemetry": False,
        "interpreters": named(options.interpreter),
        "networks": {name: {"batches": options.batches or [SMALL_BATCHES[name]]}
                     for name in options.networks},
    }
    return prepare(validate(wanted, Suite, "overhead"), "overhead")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="overhead.py", description="Time dlbench's steps against loops written by hand.")
    parser.add_argument("--frameworks", type=_words, default=list(FRAMEWORKS),
                        help="names or releases with commas")
    parser.add_argument("--networks", type=_words, default=list(SMALL_BATCHES),
                        help=f"of {', '.join(SMALL_BATCHES)}")
    parser.add_argument("--batches", type=_numbers, default=[],
                        help="with commas, for every network; default: a small one each")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--processes", type=int, default=3,
                        help="of each side; the fewest that give an interval are 3")
    parser.add_argument("--windows", type=int, default=5,
                        help=f"timed in each process, of {WINDOW_SECONDS} s or more")
    parser.add_argument("--interpreter", action="append", metavar="FRAMEWORK=PATH",
                        help="an interpreter that has the framework already")
    parser.add_argument("--out", type=Path, metavar="CSV", help="write every window here")
    return parser.parse_args(words)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _names(trial: Trial) -> dict[str, Any]:
    return {"framework": trial.framework, "release": trial.release, "network": trial.network,
            "batch": trial.batch, "device": trial.device_kind, "threads": trial.threads}


def _times(rows: Sequence[dict[str, Any]], side: str) -> list[bootstrap.Times]:
    """One array of step seconds a process."""
    mine = [row for row in rows if row["side"] == side]
    return [np.array([row["step_seconds"] for row in mine if row["process"] == process])
            for process in dict.fromkeys(row["process"] for row in mine)]


if __name__ == "__main__":
    sys.exit(main())
