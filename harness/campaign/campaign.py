"""One execution of a suite: prepare environments, run the processes in their order, keep the records, tell a watcher.

A failed process is a row; only wrong input stops a campaign, and that before anything starts.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import networks
from analysis.records import manifest
from harness import VERSION
from harness.campaign import peaks, profiling, tracing
from harness.campaign.pipeline import Ahead
from harness.campaign.process import Bench, Outcome, Sight
from harness.campaign.recorder import SCHEMA, Records, refuse_existing
from harness.campaign.rounds import Rounds
from harness.data import data_sets
from harness.data.inputs import KEPT_BATCHES, Inputs
from harness.environments import recipes, store
from harness.environments.store import BuildFailed, Environment
from harness.errors import WrongUse
from harness.machine import hardware as machine
from harness.machine.preflight import pass_gate
from harness.plan.planner import Machine, Trial, make_trials
from harness.plan.suite import Suite
from harness.proof.checks import Checks
from harness.proof.judge import Judge
from harness.telemetry.sampler import Sampler, open_sampler
from harness.workers.scratch import make_large_folder

TELLING = ("NCCL_", "GLOO_", "XLA_", "CUDA_")  # variables of the driver, inherited by workers, that change what is measured


@dataclass(frozen=True)
class Campaign:
    """A suite made ready: what it plans, on what machine, in which environments."""

    suite: Suite
    suite_file: str
    trials: list[Trial]
    machine: dict[str, Any]
    device_kind: recipes.Device  # cuda where the suite says both
    comparison: dict[str, Any] | None = None  # of a live comparison: its sides as they were asked for, and its repeats
    allow_dirty: bool = False  # whether GPUs that others use, or that are throttled, may be measured on

    @property
    def gpus(self) -> int:
        """How many GPUs its trials use."""
        return max((trial.devices for trial in self.trials if trial.status == "planned" and trial.device_kind == "cuda"), default=0)


def prepare(suite: Suite, suite_file: str, allow_dirty: bool = False) -> Campaign:
    """Plan a suite for this machine. Raises WrongUse for what cannot be meant; starts and builds nothing."""
    described = machine.describe()
    kinds: list[recipes.Device] = ["cpu", "cuda"] if suite.device == "both" else [choose_device(suite.device, described)]
    gpus = [gpu for gpu in described["gpus"] if gpu["cuda_index"] is not None]  # that CUDA_VISIBLE_DEVICES does not hide
    planned: list[Trial] = []
    for kind in kinds:
        releases = {spec: release_of(spec, suite.interpreters, kind) for spec in suite.frameworks}
        here = Machine(kind, described["cpu"]["allowed"], len(gpus))
        trials = make_trials(suite, releases, here, lambda name: data_sets.available(name) is not None)
        planned += [_refuse_scarce(_refuse_missing(trial)) for trial in trials]
    return Campaign(suite, suite_file, planned, described, kinds[-1], allow_dirty=allow_dirty)


def run(campaign: Campaign, folder: Path, resume: bool, watch: Callable[[Sight], None],
        note: Callable[[str], None], done: Callable[[Outcome, int, int], None]) -> None:
    """Run a campaign into `folder`. `watch` hears of windows, `done` of each finished process, `note` of environments that are
    built and of memory that runs short.

    Raises WrongUse, before anything starts, where the folder or the machine is not fit for it.
    """
    planned = [trial.trial for trial in campaign.trials]
    if not resume:
        refuse_existing(folder)  # before environments are built
    dirty = pass_gate(campaign.machine, campaign.gpus, campaign.allow_dirty)
    records = Records.resume(folder, planned, _conditions(campaign)) if resume else None
    ready = make_environments(campaign, note)
    suite = campaign.suite
    workshop = peaks.Workshop(ready, folder / "logs", note)
    if records is None:
        before = peaks.measure(campaign.trials, workshop) if suite.peaks else []
        records = Records.create(folder, {**first_page(campaign, folder, ready), "peaks": before})
        records.summarise()  # so that a campaign stopped in its first process has its table too
    records.add("dirty", dirty)
    finished = records.finished()
    rounds, ran = Rounds(campaign.trials, suite, folder), 0
    with make_large_folder() as scratch, _sampler(campaign) as sampler:
        records.update(telemetry=sampler.describe())
        ready = store.sharing(ready, Path(scratch))
        judge = Judge(Path(scratch), suite.check.batch, suite.check.steps, suite.seed, suite.limits.check)
        checks = Checks(judge, ready, suite.limits, folder / "logs")
        inputs = Inputs(Path(scratch), suite.seed, keep=max(KEPT_BATCHES, suite.prepare_jobs))
        bench = Bench(suite, ready, inputs, checks, folder / "logs", watch, sampler)
        if suite.check_jobs > 1:
            unproved = [trial for trial, process in rounds.planned
                        if process == 0 and not trial.dropout and (trial.trial, 0) not in finished]
            checks.ahead(unproved, suite.check_jobs, lambda trial, _: watch(Sight(trial, 0, "checked")))
        waiting = [(trial, process, number) for number, (trial, process) in enumerate(rounds.planned)
                   if (trial.trial, process) not in finished]
        with records.in_agreement(), Ahead(bench, waiting, partial(_note_shortage, records, note)) as ahead:
            for number, (trial, process) in enumerate(rounds):
                if (trial.trial, process) not in finished:
                    outcome = ahead.run(trial, process, number)
                    records.append(outcome.row, outcome.windows, outcome.counters, outcome.phases)
                    done(outcome, number + 1, rounds.total)
                    ran += 1
                if process == 0 and tracing.wanted(suite, trial) and records.untraced(trial.trial):
                    records.append_kernels(ahead.beside(tracing.trace, trial))
                if process == 0 and profiling.wanted(suite, trial) and records.untraced(trial.trial, "operators"):
                    records.append_kernels(ahead.beside(profiling.profile, trial), "operators")
    if ran:  # else nothing has run since the peaks were measured
        _measure_peaks_again(campaign, records, workshop)
    records.update(finished=datetime.now(UTC).isoformat(timespec="seconds"))
    records.summarise()
    manifest.write_manifest(folder)


def make_environments(campaign: Campaign, built: Callable[[str], None]) -> dict[str, Environment | BuildFailed]:
    """Build, or find, the environment of every release that a planned trial needs, by `framework==release`.

    One that cannot be built stands there as its failure: it costs its own trials and no others. Trials on both kinds of device
    share the GPU's environment, so that a speed-up is that of one build.
    """
    on_gpus = {(trial.framework, trial.release) for trial in campaign.trials
               if trial.status == "planned" and recipes.device_of(trial.device_kind) == "cuda"}
    ready: dict[str, Environment | BuildFailed] = {}
    for trial in campaign.trials:
        name = f"{trial.framework}=={trial.release}"
        if trial.status == "planned" and name not in ready:
            kind: recipes.Device = "cuda" if (trial.framework, trial.release) in on_gpus else "cpu"
            interpreter = campaign.suite.interpreters.get(name) or campaign.suite.interpreters.get(trial.framework)
            if interpreter:
                ready[name] = store.existing(trial.framework, interpreter, kind)
                continue
            try:
                ready[name] = store.build(trial.framework, trial.release, kind, built)
            except BuildFailed as failure:
                built(str(failure))
                ready[name] = failure
    return ready


def release_of(spec: str, interpreters: dict[str, Path], device_kind: recipes.Device) -> str:
    """The release that a spec means: its own, that of an existing interpreter, or the framework's default.

    Raises WrongUse where a spec names one release and the interpreter has another.
    """
    framework, release = recipes.parse(spec)
    interpreter = interpreters.get(spec) or interpreters.get(framework)
    if not interpreter:
        return release
    found = store.existing(framework, interpreter, device_kind).release
    if "==" in spec and found != release:
        raise WrongUse(f"{spec}: {interpreter} has {found}; name that release, or another interpreter")
    return found


def choose_device(asked: str, described: dict[str, Any]) -> recipes.Device:
    if asked == "auto":
        return "cuda" if described["gpus"] else "cpu"
    return "cuda" if asked == "cuda" else "cpu"


def _refuse_missing(trial: Trial) -> Trial:
    """Refuse a trial whose framework's recipe has nothing for this kind of device."""
    reason = recipes.unsupported(trial.framework, trial.release, recipes.device_of(trial.device_kind))
    return replace(trial, status="unsupported", reason=reason) if reason else trial


def _refuse_scarce(trial: Trial) -> Trial:
    """Refuse a trial whose mini-batch has more samples than there are of its set."""
    if trial.status != "planned" or trial.data not in data_sets.names():
        return trial
    here = data_sets.samples(trial.data, networks.get(trial.network))
    if trial.global_batch <= here:
        return trial
    reason = (f"a mini-batch of {trial.global_batch:,} does not fit into the {here:,} samples of {trial.data} that are here: ask "
              f"for a smaller batch or data=host, or fetch the whole set with `dlbench data fetch {trial.data}`")
    return replace(trial, status="unsupported", reason=reason)


def _sources(trials: list[Trial]) -> dict[str, str]:
    """What the planned trials' sets were read from, by name."""
    sources = (data_sets.available(name) for name in sorted({trial.data for trial in trials if trial.status == "planned"})
               if name in data_sets.names())
    return {source.name: source.text for source in sources if source}


def _note_shortage(records: Records, note: Callable[[str], None], text: str) -> None:
    """Tell that memory ran short, and keep it in the record."""
    note(text)
    records.add("shortages", [text])


def _sampler(campaign: Campaign) -> AbstractContextManager[Sampler]:
    if not campaign.suite.telemetry:
        return nullcontext(Sampler(reasons=["traffic, energy and clocks: the suite says telemetry: false"]))
    return open_sampler(campaign.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def first_page(campaign: Campaign, folder: Path, ready: dict[str, Environment | BuildFailed]) -> dict[str, Any]:
    """What the records of a campaign or study open with: when, what, on what machine, in which environments."""
    return {
        "schema": SCHEMA, "name": folder.name, "started": datetime.now(UTC).isoformat(timespec="seconds"), "finished": None,
        "dlbench": VERSION, "git_commit": campaign.machine["checkout"]["commit"],
        "git_dirty": campaign.machine["checkout"]["dirty"], "git_commit_stated": campaign.machine["checkout"]["stated"],
        **_conditions(campaign), "suite_file": campaign.suite_file, "seed": campaign.suite.seed,
        "concerns": [concern.text for concern in machine.concerns(campaign.machine)],
        "environments": {name: _lock(found) for name, found in ready.items() if isinstance(found, Environment)},
        "trials": [trial.to_json() for trial in campaign.trials],
        **({"comparison": campaign.comparison} if campaign.comparison else {}),
    }


def _conditions(campaign: Campaign) -> dict[str, Any]:
    """What the first page says of that under which a campaign measures, and must go on to measure."""
    return {
        "source_hash": manifest.source_hash(), "suite": campaign.suite.model_dump(mode="json"), "machine": campaign.machine,
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(TELLING)},
        "data_sets": _sources(campaign.trials),
    }


def _measure_peaks_again(campaign: Campaign, records: Records, workshop: peaks.Workshop) -> None:
    """Add the peaks after the last process to those before the first, and what a difference says of the machine."""
    meta = records.meta()
    before = meta.get("peaks", [])  # none in a campaign that an older release began
    measured = [*before, *peaks.measure_again(campaign.trials, before, workshop)]
    records.update(peaks=measured, concerns=[*meta["concerns"], *peaks.concerns(measured)])


def _lock(environment: Environment) -> dict[str, Any]:
    """What a published record says of an environment: all but where it lies, which is this machine's own affair."""
    lock = {key: value for key, value in environment.to_json().items() if key != "interpreter"}
    folder = str(environment.interpreter.parents[1])
    return {**lock, "variables": {name: value.replace(folder, "{folder}") for name, value in environment.variables.items()}}
