"""Starts the worker of a trial: one process, or one for each device, with variables and cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.environments import recipes
from harness.environments.install import BuildFailed, NoIndex
from harness.environments.store import Environment
from harness.plan.planner import Trial
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, Unsupported, Worker
from runners.resources import THREAD_VARIABLES, share_of


def start(environment: Environment | BuildFailed, trial: Trial, log: Path, module: str = "",
          extra: Mapping[str, str] | None = None) -> Worker:
    """Start a worker for `trial` that runs the framework's runner, or `module`.

    `extra` variables are added to the trial's. Raises Failed if the environment was not built, and
    Unsupported if the index that has it does not answer.
    """
    if isinstance(environment, NoIndex):
        raise Unsupported(first_line(environment))
    if isinstance(environment, BuildFailed):
        raise Failed("crashed", f"its environment could not be built: {first_line(environment)}")
    framework = recipes.load(trial.framework)
    module = module or trial.module
    given = {**variables(environment, trial), **(extra or {})}
    if trial.ranks > 1 and framework.parallel:
        launch = Launch(framework.parallel, trial.ranks, trial.nodes, trial.devices)
        return Ranks(launch, environment.interpreter, module, log, given, cores=pins(trial))
    return Worker(environment.interpreter, module, log, given, pins(trial), environment.container)


def pins(trial: Trial) -> str:
    """Return a worker's cores, in the words of `runners.resources.pin`; none on GPUs."""
    if trial.device_kind != "cpu":
        return ""
    local, ranks = trial.devices // trial.nodes, max(1, trial.ranks // trial.nodes)
    threads = trial.threads * local // ranks
    if trial.nodes > 1:
        return f"{ranks}x{threads}"
    return ";".join(",".join(map(str, share_of(rank, ranks, threads))) for rank in range(ranks))


def variables(environment: Environment, trial: Trial) -> dict[str, str]:
    """Return a worker's environment variables: threads, IEEE products in fp32, no GPU on a CPU."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(trial.threads))
    pinned = threads if trial.device_kind == "cpu" else {}
    # CUDA then numbers GPUs as NVML does, so the counters are those of the GPU that trains.
    gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if trial.device_kind == "cpu":
        gpus = {"CUDA_VISIBLE_DEVICES": ""}
    ieee = {"NVIDIA_TF32_OVERRIDE": "0"} if trial.precision == "fp32" else {}
    parallel = recipes.load(trial.framework).parallel if trial.devices > 1 else None
    kind = recipes.device_of(trial.device_kind)
    local = trial.devices // trial.nodes
    several = parallel.variables_of(kind, local) if parallel else {}
    return {**environment.variables, **pinned, **gpus, **ieee, **several}


def task_of(trial: Trial) -> dict[str, Any]:
    """Return what a worker needs to know of a trial besides its network and batch."""
    return {"device": trial.device_kind, "threads": trial.threads, "precision": trial.precision,
            "tuning": trial.tuning, "devices": trial.devices, "ranks": trial.ranks,
            "strategy": trial.strategy}


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, for a cell of a table."""
    return str(error).strip().partition("\n")[0]
