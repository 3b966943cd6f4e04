"""What all workers of a campaign, a verification or a script share.

`Session.open(plan)` builds the environments and opens the sampler, the inputs, the judge and the
pool of workers. It ends every worker that is left when it closes.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import networks
import runners.arrays
from analysis.records import reader
from harness.campaign.events import Listener
from harness.cluster import allocation
from harness.data import data_sets, divided, image_files, trained_weights
from harness.data.inputs import KEPT_BATCHES, Inputs
from harness.environments import recipes, side_by_side, store, wheels
from harness.environments.interpreters import NoPython
from harness.environments.store import BuildFailed, Environment
from harness.environments.wheels import Wheel
from harness.errors import WrongUse
from harness.inference import scenarios
from harness.inference.judge import InferenceJudge
from harness.inference.reference import Asked, Reference
from harness.plan import memory
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.proof.case import FIRST, Begin
from harness.proof.judge import Judge
from harness.proof.losses import Peers
from harness.proof.verdict import Verdict
from harness.telemetry.sampler import Sampler, open_sampler
from harness.workers import launch
from harness.workers.alive import LiveWorkers
from harness.workers.launch import task_of
from harness.workers.pool import WorkerPool
from harness.workers.scratch import make_large_folder
from harness.workers.worker import Failed, Worker

NO_TELEMETRY = "traffic, energy and clocks: the suite says telemetry: false"

# The ends of the names of environments that also hold the framework's loader of files, or LoadGen.
FOR_FILES, FOR_SCENARIOS = reader.FOR_FILES, reader.FOR_SCENARIOS

# The keys are `framework==release`, or `framework==release of A` for a side with its own.
Environments = dict[str, Environment | BuildFailed]


@dataclass(frozen=True)
class Plan:
    """A suite made ready: its trials, the machine, and what a live comparison compares."""

    suite: Suite
    suite_file: str
    trials: list[Trial]
    machine: dict[str, Any]
    device_kind: recipes.Device  # cuda if the suite says both
    # The sides as written, the repeats, and by A or B `local` interpreters and `wheels`.
    comparison: dict[str, Any] | None = None
    allow_dirty: bool = False  # measure on GPUs that others use or that are throttled

    @property
    def planned(self) -> list[Trial]:
        """The trials that can run."""
        return [trial for trial in self.trials if trial.status == "planned"]

    @cached_property
    def sources(self) -> dict[str, str]:
        """What each real data set is read from, by name, when this is first asked."""
        names = {trial.data for trial in self.planned} & set(data_sets.names())
        if self.suite.until:
            return {name: divided.text_of(name) for name in sorted(names)}
        found = map(data_sets.available, sorted(names))
        read = {source.name: source.text for source in found if source}
        if self.suite.weights:
            read |= {f"{name} to test": divided.text_of(name)
                     for name in sorted(names) if name in divided.DIVISIBLE}
        files = sorted({trial.network for trial in self.planned if trial.data == "files"})
        said = "; ".join(image_files.source(networks.get(name)) for name in files)
        return {**read, "files": said} if said else read

    @cached_property
    def weights(self) -> dict[str, dict[str, str]]:
        """The file of each network's trained weights, and its SHA-256. Raises WrongUse."""
        return {name: {"file": file.name, "sha256": self.trained(name)[1]}
                for name, file in self.suite.weights.items()}

    def trained(self, network: str) -> tuple[dict[str, np.ndarray], str]:
        """Return a network's trained weights and the SHA-256 of their file. Raises WrongUse."""
        try:
            return trained_weights.read(self.suite.weights[network], networks.get(network))
        except WrongUse as error:
            raise WrongUse(f"{self.suite_file}: weights.{network}: {error}") from None

    @property
    def gpus(self) -> int:
        """How many GPUs the trials use of this node."""
        devices = [trial.devices // trial.nodes for trial in self.planned
                   if trial.device_kind == "cuda"]
        return max(devices, default=0)


@dataclass(frozen=True)
class Session:
    """Everything that the workers of one plan share."""

    suite: Suite
    environments: Environments
    logs: Path
    inputs: Inputs
    judge: Judge
    listener: Listener = field(default_factory=Listener)
    sampler: Sampler = field(default_factory=Sampler)  # samples nothing
    pool: WorkerPool = field(default_factory=WorkerPool)
    peers: Peers = field(default_factory=Peers)
    references: Reference | None = None  # of inference
    device_bytes: float | None = None  # memory of the smallest GPU

    @classmethod
    @contextmanager
    def open(cls, plan: Plan, listener: Listener, logs: Path | None = None) -> Iterator["Session"]:
        """Open a session for `plan`. Logs are temporary where no folder is given for them."""
        suite, sources = plan.suite, plan.sources
        built = build_environments(plan, listener.note)
        # Ranks of other nodes read weights and batches too.
        shared = logs.parent.parent if logs and any(
            trial.nodes > 1 for trial in plan.planned) else None
        with make_large_folder(shared) as folder, _sampler(plan) as sampler:
            scratch = Path(folder)
            environments = store.sharing(built, scratch)
            logs = logs or scratch / "logs"
            judge = Judge(scratch, suite.check.batch, suite.check.steps, suite.seed,
                          suite.limits.check)
            # A trace trains on any batches, so it need not know how the set is divided.
            inputs = Inputs(scratch, suite.seed, max(KEPT_BATCHES, suite.prepare_jobs),
                            {} if suite.until else sources)
            reference = Reference(scratch, suite.seed, suite.check.batch, suite.limits.check,
                                  judge.live, inputs.batches, given=_given(plan, scratch))
            session = cls(suite, environments, logs, inputs, judge, listener, sampler,
                          references=reference, device_bytes=memory.of_smallest_gpu(plan.machine))
            try:
                yield session
            finally:
                session.live.stop()

    @property
    def inference(self) -> InferenceJudge:
        """The judge of trials in inference."""
        assert self.references
        return InferenceJudge(self.references, self.suite.limits.check)

    @property
    def live(self) -> LiveWorkers:
        """The workers that are alive."""
        return self.judge.live

    def environment(self, trial: Trial) -> Environment | BuildFailed:
        """Return the environment of a trial's release, or that of its side.

        Without LoadGen a network can be timed all the same.
        """
        name = self._environment_name(trial)
        if trial.data == "files" and name + FOR_FILES in self.environments:
            return self.environments[name + FOR_FILES]
        with_loadgen = self.environments.get(name + FOR_SCENARIOS)
        return with_loadgen if isinstance(with_loadgen, Environment) else self.environments[name]

    def without_loadgen(self, trial: Trial) -> str:
        """Return why LoadGen could not be installed for a trial; "" if nothing says so."""
        found = self.environments.get(self._environment_name(trial) + FOR_SCENARIOS)
        return str(found).partition("\n")[0] if isinstance(found, BuildFailed) else ""

    def _environment_name(self, trial: Trial) -> str:
        name = f"{trial.framework}=={trial.release}"
        of_side = f"{name} of {trial.side}"
        return of_side if of_side in self.environments else name

    def start(self, trial: Trial, log: Path, module: str = "",
              extra: Mapping[str, str] | None = None) -> Worker:
        """Start a worker for `trial`, as `harness.workers.launch.start` does."""
        return launch.start(self.environment(trial), trial, log, module, extra)

    def greet(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        """Return what a worker says of itself. Raises Failed if it has another release."""
        hello = worker.ask("hello", self.suite.limits.start)
        # An image's release has a word behind the framework's own: 1.9.1-cu110.
        own = (trial.release, trial.release.partition("-")[0])
        if (release := hello.get("release", "")) not in own:
            raise Failed("protocol", f"answer to 'hello': release: came {release!r}, expected "
                                     f"{trial.release!r}")
        return hello

    def build(self, worker: Worker, trial: Trial) -> dict[str, Any]:
        """Let a worker build a trial's network; return its parameters and the tier's settings."""
        task = task_of(trial)
        if trial.mode == "inference":
            task["weights"] = str(self.inference.reference.weights(Asked.of(trial)))
        if self.suite.until and self.suite.until.scheduled:
            task["scheduled"] = True
        return worker.ask("build", self.suite.limits.build, batch=trial.batch, dropout=True,
                          network=networks.get(trial.network).to_json(), seed=self.suite.seed,
                          **task)

    def prove(self, worker: Worker, trial: Trial, parameters: int, begin: Begin = FIRST) -> Verdict:
        """Prove a worker that has built a trial's network. Raises Failed and Unsupported."""
        return self.judge.prove(worker, networks.get(trial.network), task_of(trial), trial.batch,
                                parameters, self.residence(trial), begin)

    def feed(self, worker: Worker, trial: Trial) -> None:
        """Let a worker that has built a trial's network take its weights and batches."""
        network, limit = networks.get(trial.network), self.suite.limits.build
        if trial.mode == "training":
            worker.ask("load", limit, weights=str(self.inputs.weights(network)))
        batches = self.inputs.batches(network, trial.global_batch, trial.data)
        worker.ask("feed", limit, batches=str(batches), residence=self.residence(trial))

    def residence(self, trial: Trial) -> str:
        """Return where a trial's batches lie while it trains; with `until` an epoch is placed."""
        return "device" if trial.data == "device" or self.suite.until else "host"


def _given(plan: Plan, folder: Path) -> dict[str, Path]:
    """Copy the trained weights that the suite names: their files may change. Raises WrongUse."""
    files = {}
    for name, planned in plan.weights.items():
        weights, digest = plan.trained(name)
        if digest != planned["sha256"]:
            raise WrongUse(f"{plan.suite_file}: weights.{name}: {planned['file']} has changed "
                           "since it was planned; put back what it was")
        files[name] = folder / f"given-{name}.npz"
        runners.arrays.save(files[name], weights)
    return files


def build_environments(plan: Plan, note: Callable[[str], None]) -> Environments:
    """Build, or find, the environment of every release that a planned trial needs.

    A release that cannot be built is its failure, which costs only its own trials. Trials on a CPU
    use the GPU's environment if there is one, so that a speedup compares one build with itself.
    """
    on_gpus = {(trial.framework, trial.release) for trial in plan.planned
               if recipes.device_of(trial.device_kind) == "cuda"}
    comparison = plan.comparison or {}
    own = {**comparison.get("local", {}), **comparison.get("wheels", {})}
    releases = dict.fromkeys((trial.framework, trial.release,
                              trial.side if trial.side in own else "") for trial in plan.planned)

    def make(framework: str, release: str, side: str) -> Environment | BuildFailed:
        kind: recipes.Device = "cuda" if (framework, release) in on_gpus else "cpu"
        try:
            return _environment(plan, (framework, release, kind), own.get(side), note)
        except BuildFailed as failure:
            note(str(failure))
            return failure

    made = side_by_side.make_all([partial(make, *each) for each in releases])
    ready = Environments({f"{framework}=={release}" + (f" of {side}" if side else ""): environment
                          for (framework, release, side), environment in zip(releases, made,
                                                                             strict=True)})
    return {**ready, **_extended(plan, ready, note)}


def _extended(plan: Plan, ready: Environments, note: Callable[[str], None]) -> Environments:
    """Add what loaders of files and scenarios need beside the framework, in new environments."""
    wanted: dict[tuple[str, str], list[str]] = {}
    for trial in plan.planned:
        name = f"{trial.framework}=={trial.release}"
        if trial.data == "files" and (packages := recipes.load(trial.framework).files):
            wanted[name, FOR_FILES] = packages
    if plan.suite.scenarios:
        wanted |= {(name, FOR_SCENARIOS): [scenarios.PACKAGE] for name in ready}
    found = Environments()
    for (name, end), packages in wanted.items():
        base = ready.get(name)
        # An interpreter of the user's own has what it has.
        if not isinstance(base, Environment) or base.origin != "built":
            continue
        try:
            found[name + end] = store.extended(base, packages, note)
        except BuildFailed as failure:
            note(str(failure))
            found[name + end] = failure
    return found


def _environment(plan: Plan, what: tuple[str, str, recipes.Device],
                 place: str | Mapping[str, str] | None, note: Callable[[str], None]) -> Environment:
    """Return an environment: at a side's own interpreter, of its wheel, or of a release.

    Raises BuildFailed. In a comparison a missing Python is one too: the side cannot be built.
    """
    framework, release, kind = what
    interpreters = plan.suite.interpreters
    if isinstance(place, str):
        return store.existing(framework, Path(place), kind)
    try:
        if place:
            recipe = wheels.recipe_of(Wheel(framework, release, **place), kind)
            return store.build(framework, release, kind, note, recipe)
        named = interpreters.get(f"{framework}=={release}")
        if interpreter := named or interpreters.get(framework):
            return store.existing(framework, interpreter, kind)
        return store.build(framework, release, kind, note)
    except NoPython as absent:
        if plan.comparison:
            raise BuildFailed(str(absent)) from None
        raise


def _sampler(plan: Plan) -> AbstractContextManager[Sampler]:
    if not plan.suite.telemetry:
        return nullcontext(Sampler(reasons=[NO_TELEMETRY]))
    most = max((trial.nodes for trial in plan.planned), default=1)
    return open_sampler(plan.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"),
                        allocation.nodes()[1:most])
