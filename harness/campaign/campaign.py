"""One execution of a suite: plan its trials, run their processes in order, and keep the records.

A failed process is a row. Only wrong input stops a campaign, before anything starts.
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import networks
from analysis.records import manifest, packed, reader
from harness import VERSION
from harness.campaign import peaks, profiling, tracing
from harness.campaign.events import Event, Listener
from harness.campaign.kinds.inference import timed_inputs
from harness.campaign.pipeline import Pipeline
from harness.campaign.process import now
from harness.campaign.recorder import (
    SCHEMA,
    Recorder,
    refuse_another,
    refuse_existing,
    refuse_missing,
)
from harness.campaign.rehearsal import rehearse
from harness.campaign.rounds import Rounds
from harness.campaign.session import Environments, Plan, Session
from harness.cluster import allocation
from harness.data import data_sets
from harness.environments import recipes, store
from harness.environments.store import Environment
from harness.errors import WrongUse
from harness.inference.reference import Asked
from harness.machine import hardware
from harness.machine.preflight import pass_gate
from harness.plan import memory
from harness.plan.planner import Machine, Trial, make_trials
from harness.plan.suite import Suite
from harness.records import lock
from harness.workers.worker import Failed

# Variables of the driver that workers inherit and that change what is measured.
INHERITED = ("NCCL_", "GLOO_", "XLA_", "CUDA_")


def prepare(suite: Suite, suite_file: str, allow_dirty: bool = False,
            machine: dict[str, Any] | None = None) -> Plan:
    """Plan a suite for this machine or another; start and build nothing.

    Raises WrongUse for wrong input.
    """
    plan = prepare_side(suite, suite_file, allow_dirty, machine)
    refuse_idle(plan)
    return plan


def refuse_idle(plan: Plan) -> None:
    """Raise WrongUse for the interpreter of a release that no trial of `plan` is of."""
    planned = {(trial.framework, trial.release) for trial in plan.trials}
    for spec in plan.suite.interpreters:
        named = recipes.parse(spec)
        releases = sorted(release for framework, release in planned if framework == named[0])
        if "==" in spec and named[1] not in releases:
            there = f"{named[0]} {', '.join(releases)}" if releases else f"no {named[0]}"
            raise WrongUse(f"interpreter of {spec}: no trial uses it, the suite plans {there}; "
                           f"add frameworks={spec}, or leave the interpreter out")


def prepare_side(suite: Suite, suite_file: str, allow_dirty: bool = False,
                 machine: dict[str, Any] | None = None) -> Plan:
    """Plan a suite, or one side of a comparison, whose other side may use an interpreter too."""
    machine = machine or {**hardware.describe(), "nodes": allocation.nodes()}
    kinds: list[recipes.Device] = ["cpu", "cuda"]
    if suite.device != "both":
        kinds = [choose_device(suite.device, machine)]
    visible = [gpu for gpu in machine["gpus"] if gpu["cuda_index"] is not None]
    planned: list[Trial] = []
    for kind in kinds:
        releases = _releases(suite, suite_file, kind)
        here = Machine(kind, machine["cpu"]["allowed"], len(visible),
                       machine["memory"]["total_bytes"],
                       memory.of_smallest_gpu(machine),
                       len(machine.get("nodes", ())) or 1)
        trials = make_trials(suite, releases, here,
                             lambda name: data_sets.available(name) is not None)
        planned += [_refuse_scarce(_refuse_missing(trial)) for trial in trials]
    memory.refuse_all(planned, suite_file)
    plan = Plan(suite, suite_file, planned, machine, kinds[-1], allow_dirty=allow_dirty)
    # Wrong files are refused before anything starts.
    for name in suite.weights:
        plan.trained(name)
    return plan


def run(plan: Plan, folder: Path, listener: Listener, resume: bool = False) -> None:
    """Run a campaign into `folder`; `listener` hears of its progress.

    Raises WrongUse if the folder or the machine is not fit for it; nothing has started then. Raises
    SideFailed if a side of a comparison cannot run; nothing has been timed then.
    """
    refuse = refuse_missing if resume else refuse_existing
    refuse(folder)
    with lock.held(folder):
        refuse(folder)
        dirty = pass_gate(plan.machine, plan.gpus, plan.allow_dirty)
        trials = [trial.trial for trial in plan.trials]
        recorder = Recorder.resume(folder, trials, _conditions(plan)) if resume else None
        for text in recorder.repairs if recorder else ():
            listener.note(text)
        with Session.open(plan, listener, folder / "logs") as session:
            if plan.comparison and not recorder:
                rehearse(plan, session)
            recorder = recorder or _begin(plan, folder, session)
            recorder.add("dirty", dirty)
            # Resuming may build what could not be built before.
            recorder.update(telemetry=session.sampler.describe(), environments={
                **_locks(session.environments), **recorder.meta()["environments"]})
            with recorder.in_agreement():
                if _run_processes(plan, session, recorder):
                    _measure_peaks_again(plan, session, recorder)
        recorder.update(finished=now())
        if (answers := folder / "answers.csv").is_file():
            # A row a sample, most of them alike.
            packed.pack(answers, 0)
        listener.end()
        manifest.write_manifest(folder)


def refuse_to_resume(plan: Plan, folder: Path) -> None:
    """Raise WrongUse or BadRecords if `run` would not go on with the campaign in `folder`."""
    refuse_another(folder, reader.read(folder).meta, [trial.trial for trial in plan.trials],
                   _conditions(plan))


def _begin(plan: Plan, folder: Path, session: Session) -> Recorder:
    measured = peaks.measure(plan.trials, session) if plan.suite.peaks else []
    page = first_page(plan, folder, session.environments)
    recorder = Recorder.create(folder, {**page, "peaks": measured})
    recorder.summarise()  # a campaign that stops in its first process has a table too
    return recorder


def _run_processes(plan: Plan, session: Session, recorder: Recorder) -> bool:
    """Run the processes that are not finished, with traces and profiles; return whether any ran."""
    suite, listener, finished = plan.suite, session.listener, recorder.finished()

    def note(text: str) -> None:
        listener.note(text)
        recorder.add("shortages", [text])

    rounds = Rounds(plan.trials, suite, recorder.folder)
    # After a repair the next place in the order is not that of the plan.
    orders = itertools.count(len(finished))
    left = [(trial, process) for trial, process in rounds.planned
            if (trial.trial, process) not in finished]
    waiting = [(*each, order) for order, each in enumerate(left, start=len(finished))]
    _ask_reference(session, [trial for trial, _, _ in waiting])
    pipeline, ran = Pipeline(session, waiting, note), False
    for number, (trial, process) in enumerate(rounds, start=1):
        if (trial.trial, process) not in finished:
            outcome = pipeline.run(trial, process, next(orders))
            recorder.append(outcome)
            listener.done(outcome, number, rounds.total)
            ran = True
        if process == 0 and tracing.wanted(suite, trial) and recorder.untraced(trial.trial):
            pipeline.recordings.append(tracing.trace(session, trial))
        if (process == 0 and profiling.wanted(suite, trial)
                and recorder.untraced(trial.trial, "operators")):
            pipeline.recordings.append(profiling.profile(session, trial))
        for table, rows in pipeline.recorded():
            recorder.append_kernels(rows, table)
    return ran


def _ask_reference(session: Session, trials: Iterable[Trial]) -> None:
    """Ask the reference what the proofs will need, `check_jobs` networks at a time.

    Nothing is timed yet. Where it fails, it fails again in each process, as that process's reason.
    """
    first = {(trial.network, trial.batch, trial.devices, trial.precision,
              (trial.data, Asked.of(trial).summands) if trial.mode == "inference" else ""): trial
             for trial in trials}

    def ask(trial: Trial) -> None:
        session.listener.watch(Event(trial, 0, "asking the reference"))
        with suppress(Failed):
            if trial.mode == "inference":
                session.inference.prepare(Asked.of(trial), timed_inputs(session, trial))
            else:
                session.judge.prepare(networks.get(trial.network), trial.batch, trial.devices,
                                      trial.precision)

    for _ in session.live.each(ask, list(first.values()), session.suite.check_jobs):
        pass


def _measure_peaks_again(plan: Plan, session: Session, recorder: Recorder) -> None:
    """Add the peaks after the last process, and a concern for each that fell."""
    meta = recorder.meta()
    measured = [*meta["peaks"], *peaks.measure_again(plan.trials, meta["peaks"], session)]
    recorder.update(peaks=measured, concerns=[*meta["concerns"], *peaks.concerns(measured)])


def _releases(suite: Suite, suite_file: str, kind: recipes.Device) -> dict[str, str]:
    """Return the release of each of the suite's frameworks. Raises WrongUse."""
    for spec in suite.frameworks:
        try:
            recipes.parse(spec)
        except WrongUse as error:
            raise WrongUse(f"{suite_file}: frameworks: {error}") from None
    return {spec: release_of(spec, suite.interpreters, kind) for spec in suite.frameworks}


def release_of(spec: str, interpreters: Mapping[str, Path], device_kind: recipes.Device) -> str:
    """Return a spec's release: its own, its interpreter's, or the framework's default.

    Raises WrongUse if a spec names one release and the interpreter has another.
    """
    framework, release = recipes.parse(spec)
    exact = f"{framework}=={release}"
    interpreter = interpreters.get(exact) or interpreters.get(framework)
    if not interpreter:
        return release
    found = store.existing(framework, interpreter, device_kind).release
    if ("==" in spec or exact in interpreters) and found != release:
        raise WrongUse(f"{exact}: {interpreter} has {found}; name that release, or another "
                       "interpreter")
    return found


def choose_device(asked: str, machine: Mapping[str, Any]) -> recipes.Device:
    if asked == "auto":
        return "cuda" if machine["gpus"] else "cpu"
    return "cuda" if asked == "cuda" else "cpu"


def _refuse_missing(trial: Trial) -> Trial:
    """Refuse a trial if the framework's recipe has nothing for this kind of device."""
    kind = recipes.device_of(trial.device_kind)
    reason = recipes.unsupported(trial.framework, trial.release, kind)
    return replace(trial, status="unsupported", reason=reason) if reason else trial


def _refuse_scarce(trial: Trial) -> Trial:
    """Refuse a trial if its mini-batch is larger than its data set."""
    if trial.status != "planned" or trial.data not in data_sets.names():
        return trial
    here = data_sets.samples(trial.data, networks.get(trial.network))
    if trial.global_batch <= here:
        return trial
    reason = (f"a mini-batch of {trial.global_batch:,} does not fit into the {here:,} samples of "
              f"{trial.data} that are here: ask for a smaller batch or data=host, or fetch the "
              f"whole set with `dlbench data fetch {trial.data}`")
    return replace(trial, status="unsupported", reason=reason)


def first_page(plan: Plan, folder: Path, environments: Environments) -> dict[str, Any]:
    """Return what campaign.json opens with: when, what, on what machine, in which environments."""
    checkout = plan.machine["checkout"]
    return {
        "schema": SCHEMA, "name": folder.name, "started": now(), "finished": None,
        "dlbench": VERSION, "git_commit": checkout["commit"], "git_dirty": checkout["dirty"],
        "git_commit_stated": checkout["stated"],
        **_conditions(plan), "suite_file": plan.suite_file, "seed": plan.suite.seed,
        "concerns": [concern.text for concern in hardware.concerns(plan.machine)],
        "environments": _locks(environments),
        "trials": [trial.to_json() for trial in plan.trials],
        **({"comparison": plan.comparison} if plan.comparison else {}),
    }


def _conditions(plan: Plan) -> dict[str, Any]:
    """Return the part of the first page that must not change while a campaign runs."""
    return {
        "source_hash": manifest.source_hash(), "suite": plan.suite.model_dump(mode="json"),
        "machine": plan.machine,
        "variables": {name: value for name, value in sorted(os.environ.items())
                      if name.startswith(INHERITED)},
        "data_sets": plan.sources, **({"weights": plan.weights} if plan.weights else {}),
    }


def _locks(environments: Environments) -> dict[str, Any]:
    return {name: _lock(found) for name, found in environments.items()
            if isinstance(found, Environment)}


def _lock(environment: Environment) -> dict[str, Any]:
    """Return what a record says of an environment: everything but its place on this machine."""
    lock = environment.to_json()
    del lock["interpreter"]
    if not environment.container:
        folder = str(environment.interpreter.parent.parent)
        lock["variables"] = {name: value.replace(folder, "{folder}")
                             for name, value in environment.variables.items()}
    return lock
