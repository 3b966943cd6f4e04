"""What telemetry costs: a trial's processes with and without the sampler, interleaved in random order.

Prints the ratio of their step times with its interval, the driver's share of a core on both sides, and how many samples a second it
took. Exits with 1 where the ratio's interval lies wholly beyond 1 %, or the driver uses 5 % of a core or more.
Run it where dlbench is installed: .venv/bin/python scripts/sampler_overhead.py --framework pytorch --network fcn5 --batch 1024
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import networks
from analysis.statistics import bootstrap
from harness.campaign import campaign
from harness.campaign.process import Bench, Outcome, Sight, run_process
from harness.data.inputs import Inputs
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.plan.suite import Suite
from harness.proof.checks import Checks
from harness.proof.judge import Judge
from harness.telemetry.sampler import EDGE, Sampler, open_sampler
from harness.validation import validate

SIDES = ("without", "with")
MOST_RATIO = 0.01
MOST_SHARE = 0.05


@dataclass
class Side:
    """What was measured with, or without, the sampler."""

    times: list[bootstrap.Times] = field(default_factory=list)  # one array of step seconds a process
    shares: list[float] = field(default_factory=list)  # of a core that the driver used, one a timed window
    samples: list[float] = field(default_factory=list)  # taken a second, one value a process, by the busiest source


class Watch:
    """Notes the driver's processor time as each timed window ends."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, float]] = []

    def __call__(self, sight: Sight) -> None:
        if sight.phase == "timing":
            self.moments.append((time.monotonic(), time.process_time()))

    def shares(self) -> list[float]:
        pairs = zip(self.moments, self.moments[1:], strict=False)
        return [(busy - busy_before) / (now - before) for (before, busy_before), (now, busy) in pairs]


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 0 where sampling costs as little as promised, 1 where not, 2 for wrong use."""
    options = _arguments(words)
    try:
        sides = measure(_suite(options))
    except (WrongUse, networks.UnknownNetwork) as error:
        print(f"sampler_overhead: {error}", file=sys.stderr)
        return 2
    for line in report(sides):
        print(line)
    return 0 if cheap(sides) else 1


def measure(suite: Suite) -> dict[str, Side]:
    """Time the suite's one trial on both sides, in every round in another order. Raises WrongUse where it cannot run."""
    prepared = campaign.prepare(suite, "sampler_overhead")
    trial = prepared.trials[0]
    if trial.status != "planned":
        raise WrongUse(f"{trial.trial}: {trial.reason}")
    ready = campaign.make_environments(prepared, print)
    sides = {name: Side() for name in SIDES}
    order = random.Random(suite.seed)
    with tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
        scratch = Path(folder)
        inputs, checks = Inputs(scratch, suite.seed), Checks(Judge(scratch, 2, 3, suite.seed, 900), ready, suite.limits, scratch)
        for process in range(1, suite.processes + 1):  # the process 0 of a trial would prove sameness first
            for name in order.sample(SIDES, len(SIDES)):
                watch = Watch()
                visible = os.environ.get("CUDA_VISIBLE_DEVICES")
                with open_sampler(prepared.gpus, visible) if name == "with" else nullcontext(Sampler()) as sampler:
                    bench = Bench(suite, ready, inputs, checks, scratch / name, watch, sampler)
                    outcome = run_process(bench, trial, process, process)
                _note(sides[name], outcome, watch, sampler)
                print(f"process {process} {name} the sampler: {1e3 * np.median(sides[name].times[-1]):.4g} ms a step", flush=True)
    return sides


def cheap(sides: dict[str, Side]) -> bool:
    """Say whether step times may be equal within 1 % and the driver is under 5 % of a core."""
    ratio = bootstrap.ratio(sides["with"].times, sides["without"].times)
    low, high = (ratio.low, ratio.high) if ratio.has_interval else (ratio.value, ratio.value)
    return low <= 1 + MOST_RATIO and high >= 1 - MOST_RATIO and float(np.median(sides["with"].shares)) < MOST_SHARE


def report(sides: dict[str, Side]) -> list[str]:
    """Put the comparison into lines."""
    ratio = bootstrap.ratio(sides["with"].times, sides["without"].times)
    interval = f"95 % interval {ratio.low:.4f} to {ratio.high:.4f}" if ratio.has_interval else "too few processes for an interval"
    shares = {name: 100 * float(np.median(side.shares)) for name, side in sides.items()}
    return [
        f"step time with the sampler / without: {ratio.value:.4f} ({interval}; {ratio.processes} processes a side)",
        f"the driver's share of a core: {shares['with']:.2f} % with the sampler, {shares['without']:.2f} % without",
        f"samples a second: {np.median(sides['with'].samples):.1f}",
    ]


def _note(side: Side, outcome: Outcome, watch: Watch, sampler: Sampler) -> None:
    if outcome.row["status"] != "ok":
        raise WrongUse(f"{outcome.row['trial']}: {outcome.row['reason']}")
    timed = [window for window in outcome.windows if window["window"] >= 0]
    side.times.append(np.array([window["step_seconds"] for window in timed]))
    side.shares += watch.shares()
    kinds: dict[tuple[str, str], int] = {}
    for sample in sampler.samples:
        which = sample["device"], "fast" if sample["kind"] == EDGE else sample["kind"]
        kinds[which] = kinds.get(which, 0) + 1
    side.samples.append(max(kinds.values(), default=0) / (outcome.windows[-1]["stop"] - outcome.windows[0]["start"]))


def _suite(options: argparse.Namespace) -> Suite:
    wanted = {
        "frameworks": [options.framework], "networks": {options.network: {"batches": [options.batch] if options.batch else []}},
        "device": options.device, "data": options.data, "processes": options.processes, "windows": options.windows,
        "window_seconds": options.window_seconds, "interpreters": named(options.interpreter),
    }
    return validate(wanted, Suite, "sampler_overhead")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sampler_overhead.py", description="Time a trial with and without telemetry.")
    parser.add_argument("--framework", default="pytorch", help="a name or a release, as in pytorch==2.13.0")
    parser.add_argument("--network", default="fcn5")
    parser.add_argument("--batch", type=int, help="default: the network's own")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data", choices=("device", "host"), default="host")
    parser.add_argument("--processes", type=int, default=8, help="of each side; the fewest that give an interval are 3")
    parser.add_argument("--windows", type=int, default=8, help="timed in each process; at least 2")
    parser.add_argument("--window-seconds", type=float, default=0.3)
    parser.add_argument("--interpreter", action="append", metavar="FRAMEWORK=PATH",
                        help="an interpreter that has the framework already")
    options = parser.parse_args(words)
    if options.windows < 2:
        parser.error("--windows: the driver's share of a core needs at least 2")
    return options


if __name__ == "__main__":
    sys.exit(main())
