"""Refuses trials that certainly need more memory than the machine has.

An estimate from the network, not a prediction: what it counts is held at one time whatever the
framework does, and a trial that passes may run out of memory all the same. Such a trial is
`unsupported`, as one with more threads than the machine has cores: nothing of it was started.
"""

from collections.abc import Sequence
from typing import Any

import networks
from harness.data import arrays
from harness.errors import WrongUse
from networks import work

OUT_OF_MEMORY = "out_of_memory: "
HALF = ("bf16", "fp16")
REFERENCE_BYTES = 8


def refusal(trial: Any, host: float | None, device: float | None, samples: int) -> str:
    """Return why a trial cannot fit into `host` and, on GPUs, `device` bytes; "" if it may.

    `samples` are those of one device that the reference of the proof computes at most. None stands
    for a size that is not known.
    """
    network, on_gpus = networks.get(trial.network), trial.device_kind == "cuda"
    trains = trial.mode == "training"
    least = work.least_step_bytes if trains else work.least_call_bytes
    step = least(network, trial.batch, 2 if trial.precision in HALF else 4)
    # The reference computes outputs sample by sample.
    samples = min(samples, trial.batch) * trial.devices if trains else 1
    proof = least(network, samples, REFERENCE_BYTES)
    drawn = trial.data in ("device", "host", "files")
    batches = arrays.ring_length(network, trial.global_batch) if drawn else 1
    ring = batches * arrays.batch_bytes(network, trial.global_batch)
    of_all = 0 if on_gpus else step * trial.devices // trial.nodes
    wanted = [(max(ring, proof, of_all), host, "the machine"),
              (step if on_gpus else 0, device, "each GPU")]
    return next((f"{OUT_OF_MEMORY}needs at least {need / 2**30:,.1f} GiB, {who} has "
                 f"{there / 2**30:,.1f} GiB; choose a smaller batch"
                 for need, there, who in wanted if there and need > there), "")


def refuse_all(trials: Sequence[Any], source: str) -> None:
    """Raise WrongUse if memory refuses every trial of a suite."""
    if trials and all(trial.reason.startswith(OUT_OF_MEMORY) for trial in trials):
        first = trials[0]
        raise WrongUse(f"{source}: batch {first.batch} of {first.network}: "
                       f"{first.reason.removeprefix(OUT_OF_MEMORY)}")
