"""How far a correct runner may be from the reference, by tensor, from Monte Carlo arithmetic.

The reference runs again and again with random rounding of the declared precision
(`runners.reference.rounded`). A runner may be `FACTOR` times as far off as the farthest of those
runs. `scripts/derive_limits` derives the limits of our networks and keeps them here, with a hash of
what they depend on. Those of other networks, or of another number of samples, are derived when they
are needed and kept in the user's cache.
"""

import hashlib
import io
import json
import os
import threading
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
from harness.proof.questions import PLAIN, Question, Questions
from runners.reference import llama, transformers

KEPT = Path(__file__).parent / "limits"
SOURCES = Path(__file__).parents[2] / "runners" / "reference"
# The farthest of 12 normal numbers is about 1.6 standard deviations away; a proof compares a
# thousand numbers, whose errors have heavier tails where a unit flips.
FACTOR = 5.0
DRAWS, RUNS = 4, 3  # questions of other weights and samples, and runs of each
# The error that fp32 may always have, in units of 2^-24: found 1785 for a gradient (ResNet-50 in
# MXNet).
FLOOR = 3400 * 2.0**-24
LOSS_FLOOR = 170 * 2.0**-24
# The error that all numbers of a tensor may have in common if activations are stored in few bits:
# they share a state or a factor that rounds once. JAX's and TensorFlow's LSTM-32 were 0.003 off in
# bf16. The loss too: PyTorch 2.11's cross entropy rounds each row's loss to bf16, 0.0025 off on an
# H200.
COMMON = {"bf16": 2.0**-8, "fp16": 2.0**-11}
# Distance of a convolution's gradient, by algorithms that transform their operands: XLA's choice
# for a 5x5 convolution in fp32 was 0.0013 off on an H200, its coefficient 0.00001.
CONVOLUTION = 0.003
DIGITS = 2
# Held of each parameter while limits are derived, in float64: weights, momentum and gradient of the
# reference, and of the one that rounds. CaffeNet's took 68 bytes at the peak.
BYTES_A_PARAMETER = 48


@dataclass(frozen=True)
class Allowed:
    """Largest errors of one tensor: of its coefficient, its norm and its distance."""

    coefficient: float
    norm: float
    distance: float


@dataclass(frozen=True)
class Limits:
    """What one kind of weights allows in one precision; `loss` is a relative error."""

    loss: float
    tensors: dict[str, Allowed]


class LimitsOf:
    """Finds limits: kept with dlbench, else in the user's cache, else derived now."""

    def __init__(self, questions: Questions):
        self.questions = questions
        self.known: dict[tuple[str, int], dict[str, Any]] = {}
        self.ready: dict[tuple[str, int, str, str], Limits] = {}
        self.locks: dict[tuple[str, int], threading.Lock] = {}

    def of(self, question: Question, kind: str, precision: str) -> Limits:
        """Return the limits for the gradients of one kind of weights. Raises Failed."""
        key = question.network.name, question.samples
        with self.locks.setdefault(key, threading.Lock()):
            if (*key, kind, precision) not in self.ready:
                self.ready[(*key, kind, precision)] = self._limits(question, kind, precision)
            return self.ready[(*key, kind, precision)]

    def _limits(self, question: Question, kind: str, precision: str) -> Limits:
        network, samples = question.network, question.samples
        key = network.name, samples
        if key not in self.known:
            self.known[key] = kept(network, samples)
        found = self.known[key]
        if f"{precision} {kind}" not in found:
            found[f"{precision} {kind}"] = derive(self.questions, network, samples, kind, precision)
            keep(network, samples, found, cache())
        spread = found[f"{precision} {kind}"]
        floor = FLOOR + COMMON.get(precision, 0.0)
        convolutions = {layer.name for layer in network.layers if layer.op == "conv2d"}
        tensors = {}
        for name, errors in spread["tensors"].items():
            coefficient, norm, distance = (FACTOR * error + floor for error in errors)
            if name.partition(".")[0] in convolutions:
                distance = max(distance, CONVOLUTION)
            tensors[name] = Allowed(coefficient, norm, distance)
        loss = FACTOR * spread["loss"] + LOSS_FLOOR + COMMON.get(precision, 0.0)
        return Limits(loss, tensors)


def too_large(network: networks.Network, samples: int, precision: str,
              memory_bytes: float | None) -> str:
    """Say why limits are neither kept nor can be derived in so many bytes of memory, or ""."""
    need = BYTES_A_PARAMETER * network.parameter_count
    if not memory_bytes or need <= memory_bytes:
        return ""
    if f"{precision} {PLAIN}" in kept(network, samples):
        return ""
    return (f"needs at least {need / 2**30:,.1f} GiB to derive the limits of its proof in "
            f"{precision}, the machine has {memory_bytes / 2**30:,.1f} GiB; train it on a larger "
            "one, or choose a smaller network")


def derive(questions: Questions, network: networks.Network, samples: int, kind: str,
           precision: str) -> dict[str, Any]:
    """Return the largest errors of `DRAWS` times `RUNS` runs with random rounding."""
    # Rounding spreads among a few tokens as among 1024, whose answers would take hours.
    network = networks.short_of(network)
    worst: dict[str, Any] = {"loss": 0.0, "tensors": {}}
    for draw in range(DRAWS):
        question = questions.question(network, samples, 1, draw)
        spread = questions.spread(question, kind, precision, RUNS)
        worst["loss"] = max(worst["loss"], spread["loss"])
        for name, errors in spread["tensors"].items():
            before = worst["tensors"].get(name, errors)
            worst["tensors"][name] = list(map(max, before, errors))
    return {"loss": rounded(worst["loss"]),
            "tensors": {name: list(map(rounded, errors))
                        for name, errors in worst["tensors"].items()}}


def kept(network: networks.Network, samples: int) -> dict[str, Any]:
    """Return what is kept of a network's limits and still holds; {} if nothing is."""
    return {**read(cache(), network, samples), **read(KEPT, network, samples)}


def read(folder: Path, network: networks.Network, samples: int) -> dict[str, Any]:
    """Return what a folder holds of a network's limits, {} if they depend on something else."""
    try:
        page = json.loads(file_of(folder, network, samples).read_text())
    except (OSError, ValueError):
        return {}
    return dict(page["largest_errors"]) if page.get("depends_on") == depends_on(network) else {}


def keep(network: networks.Network, samples: int, found: dict[str, Any], folder: Path) -> None:
    """Write limits to a folder, if it can be written."""
    page = {"network": network.name, "samples": samples, "depends_on": depends_on(network),
            "runs": DRAWS * RUNS, "largest_errors": dict(sorted(found.items()))}
    lines = json.dumps(page, indent=1).replace("[\n     ", "[").replace(",\n     ", ", ")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file_of(folder, network, samples).write_text(lines.replace("\n    ]", "]") + "\n")
    except OSError:
        return


def file_of(folder: Path, network: networks.Network, samples: int) -> Path:
    return folder / f"{network.name}-s{samples}.json"


def cache() -> Path:
    """Return the folder for limits that dlbench does not bring."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dlbench" / "limits"


def depends_on(network: networks.Network) -> str:
    """Return a hash of the network, the reference's code without comments, and the runs."""
    digest = hashlib.sha256()
    described = networks.short_of(network).to_json()
    for key in ("title", "batches", "data_set"):
        described.pop(key)
    digest.update(json.dumps([described, DRAWS, RUNS], sort_keys=True).encode())
    ours = ["operations", "rounded"]
    ops = {layer.op for layer in network.layers}
    if ops.intersection([*transformers.OPERATIONS, *llama.OPERATIONS]):
        ours += ["transformers", "rounded_transformers"]
    if ops.intersection(llama.OPERATIONS):
        ours += ["llama", "rounded_llama"]
    for name in ours:
        source = (SOURCES / f"{name}.py").read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                digest.update(token.string.encode() + b"\0")
    return digest.hexdigest()[:16]


def rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
