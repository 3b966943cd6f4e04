"""Refuses trials that certainly need more memory than the machine has.

An estimate from the network, not a prediction: what it counts is held at one time whatever the
framework does, and a trial that passes may run out of memory all the same. Such a trial is
`unsupported`, as one with more threads than the machine has cores: nothing of it was started.

`fitting` guesses instead how many processes a GPU holds while they wait to be timed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import networks
from harness.data import arrays
from harness.errors import WrongUse
from networks import work

OUT_OF_MEMORY = "out_of_memory: "
HALF = ("bf16", "fp16")
REFERENCE_BYTES = 8
# A waiting process is expected to hold so many times the GPU memory that its step needs at least,
# and some more. On H200s ResNet-50 held 2.8 times that in PyTorch. It held 5.3 times in TensorFlow
# and JAX, whose pools double. LSTMs, whose steps need 0.1 GiB, held 1.6 to 6.2 GiB.
PYTORCH, TIMES_LEAST, CONTEXT_BYTES = 3.5, 5.5, 3.0 * 2**30
# Autotuning takes the rest for a moment.
SHARE = 0.9
# Of what a group that ran out of memory was expected to hold, the next one may hold so much.
LESS = 0.75


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
    for need, there, who in ((max(ring, proof, of_all), host, "the machine"),
                             (step if on_gpus else 0, device, "each GPU")):
        if there and need > there:
            return (f"{OUT_OF_MEMORY}needs at least {need / 2**30:,.1f} GiB, {who} has "
                    f"{there / 2**30:,.1f} GiB; choose a smaller batch")
    return ""


def of_smallest_gpu(machine: Mapping[str, Any]) -> float | None:
    """Return the bytes of the smallest visible GPU; None without one, infinity if not known."""
    return min((gpu["memory_bytes"] or math.inf for gpu in machine["gpus"]
                if gpu["cuda_index"] is not None), default=None)


def fitting(trials: Sequence[Any], device: float | None) -> int:
    """Return how many of the first trials a GPU of `device` bytes holds together, at least one.

    Each trial takes the first GPU. All fit if the size is not known.
    """
    held = 0.0
    for count, trial in enumerate(trials):
        held += _expected(trial)
        if device and count and held > SHARE * device:
            return count
    return len(trials)


def smaller(trials: Sequence[Any]) -> float:
    """Return a size of GPU that `fitting` finds too small for trials that ran out of memory.

    0 if they hold no memory of a GPU.
    """
    return LESS * sum(map(_expected, trials)) / SHARE


def _expected(trial: Any) -> float:
    """Guess the bytes of a GPU that a process of a trial holds."""
    if trial.device_kind != "cuda":
        return 0.0
    least = work.least_step_bytes if trial.mode == "training" else work.least_call_bytes
    bytes_each = 2 if trial.precision in HALF else 4
    step = least(networks.get(trial.network), trial.batch, bytes_each)
    return (PYTORCH if trial.framework == "pytorch" else TIMES_LEAST) * step + CONTEXT_BYTES


def refuse_all(trials: Sequence[Any], source: str) -> None:
    """Raise WrongUse if memory refuses every trial of a suite."""
    if trials and all(trial.reason.startswith(OUT_OF_MEMORY) for trial in trials):
        first = trials[0]
        raise WrongUse(f"{source}: batch {first.batch} of {first.network}: "
                       f"{first.reason.removeprefix(OUT_OF_MEMORY)}")
