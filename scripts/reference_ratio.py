"""dlbench's rows beside loops that each community writes: how fast a row is by its loop.

Processes of both sides take turns: one of a campaign, and the loop of its tier in
scripts/reference_loops/ before or after it, as a seeded draw says. The folder holds the campaign,
every window of the loops (loops.csv), both sides' seconds a step (raw_times.json) and the ratios
with intervals (reference_ratios.csv). Run it where dlbench is installed, as in
.venv/bin/python scripts/reference_ratio.py --pairs pytorch/resnet50,jax/alexnet --precisions bf16
"""

import argparse
import contextlib
import csv
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

import networks
from analysis.records import manifest, reader
from analysis.records.columns import RATIO_COLUMNS
from analysis.statistics import bootstrap
from analysis.trials import effort, summary
from harness.campaign import campaign
from harness.campaign.events import Event, Outcome
from harness.campaign.session import Plan
from harness.cli.terminal import Notes
from harness.environments import store
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.validation import validate
from runners.wire import OUT_OF_MEMORY

LOOPS = Path(__file__).resolve().parent / "reference_loops"
# Framework: the folder of its loops, and the loop's tier for each of ours.
TIERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "pytorch": ("pytorch", {"stock": "stock", "compiled": "compiled", "tuned": "tuned"}),
    "jax": ("jax", {"stock": "stock", "tuned": "tuned"}),
    # The fastest loop of Keras's guides is the compiled one.
    "tensorflow": ("keras", {"stock": "stock", "compiled": "compiled", "tuned": "compiled",
                             "uncompiled": "uncompiled"}),
    # PyTorch's loops, exported.
    "onnxruntime": ("pytorch", {"stock": "stock", "tuned": "tuned"}),
}
TRAINED = ("pytorch", "jax", "tensorflow")
# What runs a framework's loops, where it is not the file of the mode.
RUNNERS = {"onnxruntime": "onnxruntime_session"}
# Network: its loop's name, and the loop's arguments.
NETWORKS = {"lstm32": ("lstm", "--words", "32"), "lstm64": ("lstm", "--words", "64")}
SLOWER, AS_FAST = "slower than its loop", "not slower than its loop"
NOT_TOLD = f"too noisy to tell: its interval holds {effort.OF_ITS_LOOP}"
WINDOWS = ("trial", "process", "window", "steps", "seconds", "reason")
LIMIT_SECONDS = 900
GETTING_READY = ("starting", "building", "proving")
# As dlbench's workers: a framework that takes all of the GPU's memory leaves none for the others.
AS_NEEDED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
HOW_LONG = """Each process of ours takes 10 to 60 s to start, compile and be proved, and --windows
windows; its loop gets ready beside it and takes --seconds. --prepare-jobs lets several get ready at
a time, as far as the device's memory reaches."""


@dataclass(frozen=True)
class Loops:
    """Where the loops are, what runs them, and how long."""

    folder: Path
    interpreters: Mapping[str, Path]
    seconds: float
    window_seconds: float
    window_steps: int
    mode: str = "training"

    def command(self, trial: Trial) -> list[str]:
        """Return the command of a trial's loop. Raises WrongUse if there is none."""
        name, tiers = TIERS.get(trial.framework, (trial.framework, {trial.tuning: trial.tuning}))
        network, *more = NETWORKS.get(trial.network, (trial.network,))
        file = self.folder / name / f"{network}.py"
        runs = file.with_name(f"{RUNNERS.get(trial.framework, self.mode)}.py")
        if not file.is_file() or not runs.is_file() or trial.tuning not in tiers:
            raise WrongUse(f"{file}, {runs.name}: no loop of {trial.framework} {trial.tuning}, "
                           f"{trial.network}: choose other --networks, --frameworks or --tiers")
        interpreter = self.interpreters.get(trial.framework) or store.build(
            trial.framework, trial.release, "cuda" if trial.device_kind == "cuda" else "cpu",
            print).interpreter
        return [str(interpreter), str(LOOPS / "loop.py"), str(file), "--batch", str(trial.batch),
                "--mode", self.mode, "--runner", runs.stem, "--precision", trial.precision,
                "--tier", tiers[trial.tuning],
                "--device", trial.device_kind, "--seconds", str(self.seconds),
                "--window", str(self.window_seconds), "--steps", str(self.window_steps), *more]


class Loop:
    """A loop's process. It gets ready at once, and is timed when `windows` asks."""

    def __init__(self, command: list[str], log: Path):
        self.command, self.log = command, log
        inherited = AS_NEEDED | {name: value for name, value in os.environ.items()
                                 if name not in ("PYTHONPATH", "PYTHONHOME")}
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, env={**inherited, "PYTHONNOUSERSITE": "1"})
        self.late = threading.Event()
        self.said = ""
        self._limit()

    def wait(self) -> None:
        """Return once the loop is ready or has failed."""
        if not self.said and self.process.stdout:
            self.said = self.process.stdout.readline() or "nothing"
            # Waiting for its turn is not the loop's time.
            self.timer.cancel()

    def windows(self) -> tuple[list[dict[str, float]], str]:
        """Let the loop time its windows; return them, or why it has none."""
        self.wait()
        self._limit()
        assert self.process.stdin and self.process.stdout
        # A loop that has failed no longer reads.
        with contextlib.suppress(BrokenPipeError), self.process.stdin as asked:
            asked.write("go\n")
        # `communicate` would lose what was read with the first line.
        with self.process.stdout as answers:
            answered = answers.read()
        self.process.wait()
        self.timer.cancel()
        if self.late.is_set():
            return [], f"timed_out: the loop took more than {LIMIT_SECONDS} s"
        if self.process.returncode:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            # PyTorch's last line advises to compile with assertions.
            why = ([line for line in lines if _lacks_memory(line)] or lines)[-1]
            return [], f"crashed: the loop ended with {self.process.returncode}: {why[:300]}"
        try:
            windows = [json.loads(line) for line in answered.splitlines() if line.strip()]
            windows = [{"steps": int(each["steps"]), "seconds": float(each["seconds"])}
                       for each in windows]
        except (ValueError, KeyError, TypeError):
            return [], f"protocol: the loop answered {answered[:100]!r}"
        return windows, "" if windows else "protocol: the loop timed no window"

    def end(self) -> None:
        """End a loop that is not wanted."""
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()

    def _limit(self) -> None:
        self.timer = threading.Timer(LIMIT_SECONDS, self._end_late)
        self.timer.daemon = True
        self.timer.start()

    def _end_late(self) -> None:
        self.late.set()
        self.process.kill()


class TakingTurns(Notes):
    """Times the loop of each process before or after its windows, and writes the loop's windows.

    A loop gets ready while its process does. Nothing is timed before all loops are ready.
    """

    def __init__(self, plan: Plan, loops: Loops, folder: Path):
        self.loops, self.folder = loops, folder
        self.seed, self.side_by_side = plan.suite.seed, plan.suite.prepare_jobs > 1
        self.started: dict[tuple[str, int], Loop] = {}
        self.looped: set[tuple[str, int]] = set()
        # Loops that lacked memory beside others, and their commands.
        self.again: dict[tuple[str, int], list[str]] = {}

    def watch(self, event: Event) -> None:
        """Start the loop of a process that starts; time it first where the draw says so."""
        super().watch(event)
        key = event.trial.trial, event.process
        if event.phase == "starting" and key not in self.looped | set(self.started):
            self.started[key] = Loop(self.loops.command(event.trial), self._log(key))
        elif event.phase not in GETTING_READY:
            for loop in list(self.started.values()):
                loop.wait()
            if random.Random(f"{self.seed} {key[0]} {key[1]}").random() < 0.5:
                self._time_loop(key)

    def done(self, outcome: Outcome, number: int, total: int) -> None:
        """Time the loop of the process that has finished."""
        row = outcome.row
        self.note(f"{number} of {total}: {row['trial']} process {row['process']}: {row['status']} "
                  f"{row['reason']}".rstrip())
        key = row["trial"], row["process"]
        if row["status"] == "ok":
            self._time_loop(key)
        elif loop := self.started.pop(key, None):
            loop.end()
        while self.again and not self.started:
            key, command = self.again.popitem()
            self._record(key, *Loop(command, self._log(key)).windows())

    def close(self) -> None:
        """End the loops that were not timed."""
        for loop in self.started.values():
            loop.end()

    def _log(self, key: tuple[str, int]) -> Path:
        return self.folder / "logs" / f"{key[0]}-loop-{key[1]}.log"

    def _time_loop(self, key: tuple[str, int]) -> None:
        """Time a loop, unless it was timed beside this process."""
        loop = self.started.pop(key, None)
        if loop is None:
            return
        self.looped.add(key)
        windows, reason = loop.windows()
        if self.side_by_side and _lacks_memory(reason):
            self.note("  its loop lacked memory beside others: it runs again alone")
            self.again[key] = loop.command
        else:
            self._record(key, windows, reason)

    def _record(self, key: tuple[str, int], windows: Sequence[Mapping[str, float]],
                reason: str) -> None:
        self.note(f"  its loop: {len(windows)} windows {reason}".rstrip())
        same = {"trial": key[0], "process": key[1]}
        rows = [{**same, "window": place, **window} for place, window in enumerate(windows)]
        append(self.folder / "loops.csv", rows if not reason else [{**same, "reason": reason}])


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 0 if no row is slower than its loop, 1 otherwise, 2 for wrong use.

    After an interruption it is 130.
    """
    options = _arguments(words)
    console = Console()
    folder = options.out or Path("results") / f"reference-{datetime.now():%Y-%m-%d-%H%M%S}"
    try:
        interpreters = named(options.interpreter)
        plan = _plan(options, interpreters)
        loops = Loops(options.loops, {**interpreters, **named(options.loop_interpreter)},
                      options.seconds, options.window_seconds, options.window_steps, options.mode)
        for trial in plan.planned:
            loops.command(trial)
        stopped = _measure(plan, folder, loops)
        raw = times(folder)
        (folder / "raw_times.json").write_text(json.dumps(raw, indent=1))
        found = ratios(folder, raw)
        append(folder / "reference_ratios.csv", found, tuple(RATIO_COLUMNS))
        manifest.write_manifest(folder)
    except (WrongUse, networks.UnknownNetwork) as error:
        print(f"reference_ratio: {error}", file=sys.stderr)
        return 2
    console.print(table(found))
    console.print(f"Records: {folder}", highlight=False)
    if stopped:
        return 130
    return 1 if any(row.get("verdict") == SLOWER or row["reason"] for row in found) else 0


def _measure(plan: Plan, folder: Path, loops: Loops) -> bool:
    """Run both sides; return whether the user interrupted it, which loses nothing measured."""
    with contextlib.closing(TakingTurns(plan, loops, folder)) as turns:
        try:
            campaign.run(plan, folder, turns)
        except KeyboardInterrupt:
            if not (folder / "campaign.json").is_file():
                sys.exit(130)
            print("reference_ratio: interrupted; what was measured so far:", file=sys.stderr)
            return True
    return False


def _lacks_memory(text: str) -> bool:
    return any(sign in text.lower() for sign in OUT_OF_MEMORY)


def times(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Return by trial both sides' seconds a step: of each process those of its windows."""
    recorded = reader.read(folder)
    file = folder / "loops.csv"
    loops = pd.read_csv(file, keep_default_na=False) if file.exists() else \
        pd.DataFrame(columns=list(WINDOWS))
    found = {}
    for row in summary.summarise(recorded).to_dict("records"):
        own = loops[loops["trial"] == row["trial"]]
        timed = own[own["reason"] == ""].astype({"steps": float, "seconds": float})
        ours = summary.times_of(summary.without_diverged(recorded), str(row["trial"])) \
            if row["status"] == "ok" else []
        found[str(row["trial"])] = {
            "reasons": list(own.loc[own["reason"] != "", "reason"]),
            "loop": [(each["seconds"] / each["steps"]).tolist()
                     for _, each in timed.groupby("process")],
            "ours": [np.asarray(each).tolist() for each in ours]}
    return found


def ratios(folder: Path, raw: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each row of the campaign in `folder` how many times as fast as its loop it is.

    `raw` is what `times` returns. The intervals draw processes anew, and windows within them.
    """
    found = []
    for row in summary.summarise(reader.read(folder)).to_dict("records"):
        theirs, ours = ([np.array(each) for each in raw[row["trial"]][side]]
                        for side in ("loop", "ours"))
        failed = raw[row["trial"]]["reasons"]
        line = {**{key: row[key] for key in RATIO_COLUMNS if key in row}, "tier": row["tuning"],
                "reason": row["reason"] if row["status"] != "ok" else "; ".join(failed[:1])}
        if ours and theirs:
            line |= _ratio(theirs, ours)
        found.append(line)
    return found


def _ratio(theirs: list[bootstrap.Times], ours: list[bootstrap.Times]) -> dict[str, Any]:
    """Return both times and the ratio of rates: above 1, our row is faster than its loop."""
    ratio = bootstrap.ratio(theirs, ours)
    return {"loop_seconds": bootstrap.estimate(theirs).value,
            "seconds": bootstrap.estimate(ours).value, "ratio": ratio.value,
            "ratio_low": ratio.low, "ratio_high": ratio.high, "processes": ratio.processes,
            "verdict": _verdict(ratio)}


def _verdict(ratio: bootstrap.Estimate) -> str:
    """Judge by the whole interval. Without one, as of one process, the value decides."""
    low, high = (ratio.low, ratio.high) if ratio.has_interval else (ratio.value, ratio.value)
    if high < effort.OF_ITS_LOOP:
        return SLOWER
    return AS_FAST if low >= effort.OF_ITS_LOOP else NOT_TOLD


def table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out what `ratios` returns."""
    shown = Table("network", "framework", "tier", "precision", "loop ms", "our ms", "ratio",
                  "95 % interval", "", box=box.SIMPLE_HEAD, title="Rate of our row / of its loop")
    for column in shown.columns:
        column.overflow = "fold"
    for row in found:
        numbers = ["", "", "", ""]
        if "ratio" in row:
            low, high = row["ratio_low"], row["ratio_high"]
            interval = "none: too few processes" if np.isnan(low) else f"{low:.3f} to {high:.3f}"
            numbers = [f"{1000 * row['loop_seconds']:.4g}", f"{1000 * row['seconds']:.4g}",
                       f"{row['ratio']:.3f}", interval]
        unproven = "" if row["verified"] == "yes" or "ratio" not in row else "not verified"
        said = "; ".join(filter(None, [row.get("verdict", ""), unproven, row["reason"]]))
        shown.add_row(f"{row['network']}, {row['batch']}", row["framework"], row["tier"],
                      row["precision"], *numbers, said)
    return shown


def append(file: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = WINDOWS) -> None:
    """Append rows to a CSV, which begins with its header."""
    new = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as text:
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({key: "" if value != value else value for key, value in row.items()}
                         for row in rows)


def _plan(options: argparse.Namespace, interpreters: Mapping[str, Path]) -> Plan:
    """Plan the campaign; leave out tiers that no loop of a framework has, and other pairs."""
    pairs = [tuple(pair.split("/")) for pair in options.pairs]
    if any(len(pair) != 2 for pair in pairs):
        raise WrongUse(f"--pairs {','.join(options.pairs)}: write each as FRAMEWORK/NETWORK, as in "
                       "pytorch/resnet50")
    if pairs:
        options.frameworks, options.networks = (list(dict.fromkeys(side))
                                                for side in zip(*pairs, strict=True))
    wanted = {
        "title": "Rows beside reference loops", "mode": options.mode,
        "frameworks": options.frameworks,
        "networks": {name: {"batches": options.batches} for name in options.networks},
        "precisions": options.precisions, "tunings": options.tiers, "device": options.device,
        "data": "device", "processes": options.processes, "windows": options.windows,
        "window_seconds": options.window_seconds, "telemetry": False, "trace": False,
        "peaks": False, "prepare_jobs": options.prepare_jobs, "interpreters": interpreters}
    plan = campaign.prepare(validate(wanted, Suite, "reference_ratio"), "reference_ratio",
                            options.allow_dirty)
    return replace(plan, trials=[
        trial for trial in plan.trials
        if _has_tier(trial) and (not pairs or (trial.framework, trial.network) in pairs)])


def _has_tier(trial: Trial) -> bool:
    return trial.framework not in TIERS or trial.tuning in TIERS[trial.framework][1]


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="reference_ratio.py", description="Time dlbench's rows beside reference loops.",
        epilog=HOW_LONG)
    parser.add_argument("--pairs", type=_words, default=[], metavar="FRAMEWORK/NETWORK",
                        help="with commas, in the place of --frameworks and --networks")
    parser.add_argument("--mode", choices=("training", "inference"), default="training",
                        help="inference: onnxruntime has loops too")
    parser.add_argument("--frameworks", type=_words, default=list(TRAINED), help="with commas")
    parser.add_argument("--networks", type=_words, default=["resnet50", "lstm32"])
    parser.add_argument("--batches", type=lambda text: [int(each) for each in _words(text)],
                        default=[256])
    parser.add_argument("--precisions", type=_words, default=["fp32"])
    parser.add_argument("--tiers", type=_words, default=["stock", "compiled", "tuned"])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--processes", type=int, default=effort.PROCESSES, help="of each side")
    parser.add_argument("--windows", type=int, default=5, help="of each of our processes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a loop's timed windows")
    parser.add_argument("--window-seconds", type=float, default=effort.WINDOW_SECONDS)
    parser.add_argument("--window-steps", type=int, default=effort.WINDOW_STEPS,
                        help="fewest steps in a window of a loop")
    parser.add_argument("--prepare-jobs", type=int, default=1,
                        help="processes of each side that get ready at a time")
    parser.add_argument("--interpreter", action="append", metavar="FRAMEWORK=PATH",
                        help="an interpreter that has the framework already, for both sides")
    parser.add_argument("--loop-interpreter", action="append", metavar="FRAMEWORK=PATH",
                        help="of the loop alone; it needs reference_loops/requirements.txt")
    parser.add_argument("--loops", type=Path, default=LOOPS, metavar="DIR")
    parser.add_argument("--allow-dirty", action="store_true", help="as of dlbench run")
    parser.add_argument("--out", type=Path, metavar="DIR")
    return parser.parse_args(words)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


if __name__ == "__main__":
    sys.exit(main())
