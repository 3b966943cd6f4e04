"""Sweeps the sum over nodes of a framework other than PyTorch: the link `jax_all_reduce`, say.

Each library has its own transport, so PyTorch's links do not time the others'. Here a framework's
own runner aggregates the gradients of networks of equal tensors, of growing size, as a campaign
with `phases` does. A message is a tensor where a framework sums them one by one, else all of them.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from analysis.records.study_reader import ONE_BY_ONE, own_sum
from harness.data.inputs import Inputs
from harness.environments.store import BuildFailed, Environment
from harness.plan.planner import Trial
from harness.studies.study import refusal
from harness.workers.launch import start, task_of
from harness.workers.worker import Failed, Unsupported, Worker
from networks import Network, work
from networks.builder import Builder

LIMIT_SECONDS = 300.0
# The batch of each device. It is small, so that hardly anything is computed beside the sum.
BATCH = 1
PART = "A"
PILOTS = 3
# So many small tensors, as networks have them, share what a step costs besides its messages.
TENSORS, SMALL_BYTES = 8, 2**20


def sweep(trial: Trial, environment: Environment | BuildFailed, inputs: Inputs, effort: Any,
          log: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each window of each size; a refusal or failure is one row that ends it."""
    link = own_sum(trial.framework)
    try:
        with start(environment, trial, log) as worker:
            worker.ask("hello", LIMIT_SECONDS)
            for size_bytes in effort.sizes(link):
                several = trial.framework in ONE_BY_ONE and size_bytes <= SMALL_BYTES
                count = TENSORS if several else 1
                _build(worker, trial, of_tensors(count, size_bytes // work.FLOAT_BYTES), inputs)
                timed = partial(worker.ask, "phase", LIMIT_SECONDS, variant=PART)
                # All ranks build the part before any runs it.
                timed(steps=0)
                for row in windows(timed, effort):
                    yield {"link": link, "status": "ok", "bytes": size_bytes, **row,
                           "steps": count * row["steps"]}
    except (Failed, Unsupported) as error:
        yield {"link": link, **refusal(error)}


def of_tensors(count: int, values: int) -> Network:
    """Return a network whose parameters are `count` square matrices of about so many values."""
    side = math.isqrt(values)
    layers = Builder((side, 1, 1))
    for _ in range(count):
        layers.conv(side, 1, bias=False)
    layers.global_avg_pool()
    return Network(name=f"{count}_tensors_of_{values}", title=f"{count} tensors",
                   data_set="synthetic", batches=(BATCH,), learning_rate=0.01, momentum=0.9,
                   input_shape=(side, 1, 1), vocabulary=0, classes=side,
                   layers=tuple(layers.layers))


def _build(worker: Worker, trial: Trial, network: Network, inputs: Inputs) -> None:
    batches = inputs.batches(network, BATCH * trial.devices, "device")
    worker.ask("build", LIMIT_SECONDS, network=network.to_json(), batch=BATCH, dropout=True, seed=0,
               **task_of(trial))
    worker.ask("load", LIMIT_SECONDS, weights=str(inputs.weights(network)))
    worker.ask("feed", LIMIT_SECONDS, batches=str(batches), residence="device")


def windows(timed: Callable[..., dict[str, Any]], effort: Any) -> Iterator[dict[str, Any]]:
    """Time the windows of one size; pilots of one step say how many steps fill a window."""
    pilots = [timed(steps=1) for _ in range(PILOTS)]
    shortest = min(pilot["stop"] - pilot["start"] for pilot in pilots)
    steps = max(1, math.ceil(effort.window_seconds / shortest))
    for window in range(effort.windows):
        answer = timed(steps=steps)
        seconds = answer["stop"] - answer["start"] - answer.get("idle_seconds", 0)
        yield {"window": window, "steps": steps, "start": answer["start"], "stop": answer["stop"],
               "seconds": seconds}
