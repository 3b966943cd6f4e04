"""A trial's worker, and the proof of sameness that a trial gives in a worker of its own before it is timed.

Of its own, because compilers and caches that a check fills must not touch a timed process. Checks are not timed, so several may run
at a time, ahead of the timing; then the machine is quiet again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
from harness.environments import recipes
from harness.environments.store import BuildFailed, Environment
from harness.machine.hardware import THREAD_VARIABLES, cores
from harness.plan.planner import Trial
from harness.plan.suite import Limits
from harness.proof.judge import Judge, Verdict
from harness.workers.alive import results
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, Unsupported, Worker


@dataclass(frozen=True)
class Checked:
    """A verdict, and what the worker said of itself on the way."""

    verdict: Verdict
    hello: Mapping[str, Any]
    log: Path


class Checks:
    """Makes each trial's check and keeps what came of it."""

    def __init__(self, judge: Judge, environments: Mapping[str, Environment | BuildFailed], limits: Limits, logs: Path):
        self.judge = judge
        self.environments = environments
        self.limits = limits
        self.logs = logs
        self.made: dict[str, Checked] = {}
        self.at_work = judge.at_work

    def ahead(self, trials: Sequence[Trial], jobs: int, made: Callable[[Trial, Checked], None]) -> None:
        """Make the checks of these trials, `jobs` at a time; `made` hears of each in the order of the trials."""
        pool = ThreadPoolExecutor(jobs)
        try:
            for trial, checked in zip(trials, results([pool.submit(self.of, trial) for trial in trials]), strict=True):
                made(trial, checked)
        except BaseException:  # Ctrl-C: nobody waits for what the checks at work would still say
            pool.shutdown(wait=False, cancel_futures=True)
            self.at_work.stop()
            raise
        finally:
            pool.shutdown()

    def of(self, trial: Trial) -> Checked:
        """Return the trial's check. Whatever happens to its worker is in the verdict.

        It is made now where it is not made yet, or where it failed of what may have passed since.
        """
        made = self.made.get(trial.trial)
        if made is None or made.verdict.may_pass:
            self.made[trial.trial] = made = self._make(trial)
        return made

    def _make(self, trial: Trial) -> Checked:
        log = self.logs / f"{trial.trial}-check.log"
        hello: dict[str, Any] = {}
        try:
            with self._worker(trial, log) as worker:
                hello = worker.ask("hello", self.limits.start)
                return Checked(self.judge.judge(worker, networks.get(trial.network), task_of(trial)), hello, log)
        except Unsupported as refusal:
            return Checked(Verdict("unsupported", str(refusal)), hello, log)
        except Failed as failure:
            return Checked(Verdict("different", str(failure), failure=failure.kind), hello, log)

    @contextmanager
    def _worker(self, trial: Trial, log: Path) -> Iterator[Worker]:
        log.unlink(missing_ok=True)
        with start(self.environments[f"{trial.framework}=={trial.release}"], trial, log) as worker, self.at_work.of(worker):
            yield worker


def start(environment: Environment | BuildFailed, trial: Trial, log: Path, module: str = "",
          extra: Mapping[str, str] | None = None) -> Worker:
    """Start a worker for `trial`, of its framework's runner or of `module`, with `extra` variables. Raises Failed where its
    environment was not built."""
    if isinstance(environment, BuildFailed):
        raise Failed("crashed", f"its environment could not be built: {first_line(environment)}")
    framework = recipes.load(trial.framework)
    module = module or framework.runner
    told = {**variables(environment, trial), **(extra or {})}
    if trial.ranks > 1 and framework.parallel:
        launch = Launch(framework.parallel, trial.devices)
        return Ranks(launch, environment.interpreter, module, log, told, cores=pins(trial))
    return Worker(environment.interpreter, module, log, told, pins(trial), container=environment.container)


def pins(trial: Trial, allowed: set[int] | None = None) -> str:
    """The cores of a worker, as "0,1"; of ranks a share each, as "0,1;2,3". Ranks for which there are none left share some.

    On GPUs nothing is pinned.
    """
    if trial.device_kind != "cpu":
        return ""
    chosen = cores(trial.threads * trial.devices, allowed=allowed)
    if trial.ranks == 1:
        return ",".join(map(str, chosen))
    shares = [[chosen[(rank * trial.threads + thread) % len(chosen)] for thread in range(trial.threads)]
              for rank in range(trial.devices)]
    return ";".join(",".join(map(str, share)) for share in shares)


def variables(environment: Environment, trial: Trial) -> dict[str, str]:
    """Environment variables of a worker: as many threads as the trial says, IEEE products under fp32, no GPU under cpu."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(trial.threads))
    pinned = threads if trial.device_kind == "cpu" else {}
    # By bus, so that CUDA numbers GPUs as NVML does and the counters are those of the GPU that trains.
    gpus = {"CUDA_VISIBLE_DEVICES": ""} if trial.device_kind == "cpu" else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    ieee = {"NVIDIA_TF32_OVERRIDE": "0"} if trial.precision == "fp32" else {}
    parallel = recipes.load(trial.framework).parallel if trial.devices > 1 else None
    several = parallel.variables_of(recipes.device_of(trial.device_kind), trial.devices) if parallel else {}
    return {**environment.variables, **pinned, **gpus, **ieee, **several}


def task_of(trial: Trial) -> dict[str, Any]:
    """What a worker is told of a trial, its network and batch apart."""
    return {"device": trial.device_kind, "threads": trial.threads, "precision": trial.precision, "tuning": trial.tuning,
            "devices": trial.devices, "ranks": trial.ranks, "strategy": trial.strategy}


def first_line(error: Exception) -> str:
    """The first line of an error's message, for a cell of a table."""
    return str(error).strip().partition("\n")[0]
