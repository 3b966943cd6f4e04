"""What strategies that divide the network send in a step, and how long a pipeline's stages idle.

Bytes are those of all devices together, without protocol. They follow from the network, the global
batch and how the runner says it has divided the network (its settings). A ring all-reduce of S
bytes among n devices sends 2 (n - 1) S, gathering or scattering S bytes sends (n - 1) S.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import networks
from networks import work

FLOAT, HALF = 4, 2
# Of the loss of divided logits, for each label: the largest logit, the sum, the label's logit.
LOSS_SUMS = 3
# Layers whose output has the format of their input.
KEEP_FORMAT = ("relu", "sigmoid", "gelu", "flatten", "tokens", "class_token", "first_token")
PRODUCTS = ("dense", "tied_dense", "conv2d", "attention")


@dataclass(frozen=True)
class Divided:
    """A network as one trial divides it."""

    network: networks.Network
    framework: str
    precision: str
    devices: int
    samples: int
    settings: str

    def activation(self, layer: str) -> int:
        """Return the bytes of a layer's output, or of the network's input, for all samples."""
        shape = self.network.input_shape if layer == "input" else \
            self.network.layer(layer).output_shape
        return self.samples * math.prod(shape) * self.format_of(layer)

    def format_of(self, layer: str) -> int:
        """Return the bytes of a value of a layer's output.

        JAX casts once; autocast makes products bf16 and keeps norms and sums with them in float32.
        """
        if self.precision not in ("bf16", "fp16"):
            return FLOAT
        if self.framework == "jax":
            return HALF
        if layer == "input":
            return FLOAT
        found = self.network.layer(layer)
        if found.op in PRODUCTS:
            return HALF
        if found.op in KEEP_FORMAT or found.op == "add":
            return max(self.format_of(source) for source in found.inputs)
        return FLOAT

    def named_after(self, words: str) -> list[str]:
        """Return the names that follow `words` in the settings."""
        found = re.search(rf"(?:^|; ){re.escape(words)} ([^;]*)", self.settings)
        return found.group(1).split(", ") if found else []


def of(trial: Mapping[str, Any], settings: str) -> Divided:
    """Return what a trial divides; `settings` are those of its processes."""
    return Divided(networks.get(trial["network"]), trial["framework"], trial["precision"],
                   int(trial["devices"]), int(trial["global_batch"]), settings)


def data_parallel(divided: Divided) -> float:
    """An all-reduce of all gradients."""
    return 2 * (divided.devices - 1) * work.parameter_bytes(divided.network)


def tensor(divided: Divided) -> float:
    """An all-reduce behind each pair, and one of the gradient before it unless it is the input.

    Of a table with its head: the sum of the looked up rows, the gradient before the head, and what
    the loss needs of divided logits.
    """
    sizes = 0.0
    for pair in divided.named_after("divided products:"):
        first, _, second = pair.partition("+")
        source = divided.network.layer(first).inputs[0]
        last = divided.network.layer(second)
        if last.op == "tied_dense":
            labels = divided.samples * math.prod(divided.network.target_shape)
            before = last.inputs[0]
            sizes += FLOAT * divided.activation(first) / divided.format_of(first)
            sizes += divided.activation(before) + LOSS_SUMS * FLOAT * labels
            continue
        sizes += divided.activation(second)
        sizes += divided.activation(source) if source != "input" else 0
    return 2 * (divided.devices - 1) * sizes


def pipeline(divided: Divided) -> float:
    """Each boundary's activations and their gradients; two stages add a tied table's gradient."""
    last = divided.named_after("stages that end with")
    order = [layer.name for layer in divided.network.layers]
    sent = 2.0 * sum(divided.activation(name) for name in last[:-1])
    for layer in divided.network.layers:
        table = layer.attributes.get("tied")
        ends = [order.index(name) for name in last]
        if table and order.index(table) <= ends[0] < ends[-2] + 1 <= order.index(layer.name):
            sent += 2 * FLOAT * divided.network.layer(table).parameter_count
    return sent


def fully_sharded(divided: Divided) -> float:
    """Each array is gathered in both passes and its gradient scattered.

    PyTorch gathers once what it keeps between the passes. It fills first axes up to equal parts;
    JAX cuts another axis instead, so an array that it leaves whole needs an all-reduce.
    """
    n, sent = divided.devices, 0.0
    kept = divided.named_after("kept between the passes:")
    for name, shape in divided.network.parameter_shapes.items():
        rows = -(-shape[0] // n) * n if divided.framework == "pytorch" else shape[0]
        times = 2 if name.partition(".")[0] in kept else 3
        if divided.framework == "jax" and all(size % n for size in shape):
            times = 2
        sent += times * (n - 1) * FLOAT * rows * math.prod(shape[1:])
    return sent


# How many bytes all devices send in a step.
BYTES: Mapping[str, Callable[[Divided], float]] = {
    "ddp": data_parallel, "all_reduce": data_parallel, "tensor": tensor,
    "pipeline_gpipe": pipeline, "pipeline_1f1b": pipeline, "fsdp": fully_sharded}
DIVIDING = ("tensor", "pipeline_gpipe", "pipeline_1f1b", "fsdp")


def sent_bytes(trial: Mapping[str, Any], settings: str) -> float:
    """Return the bytes that all devices of a trial send in a step; nan without a model."""
    model = BYTES.get(trial["strategy"])
    if not model or (trial["strategy"] in DIVIDING and not settings):
        return math.nan
    return model(of(trial, settings))


def bubble(trial: Mapping[str, Any], settings: str) -> float:
    """Return the share of a step in which a stage waits: (p - 1) / (m + p - 1); else nan.

    p equal stages take m micro-batches one after another, forward and backward. GPipe and 1F1B wait
    equally long (Narayanan et al., arXiv 2104.04473).
    """
    said = re.search(r"(?:^|; )(\d+) micro-batches", settings)
    if not said:
        return math.nan
    stages, parts = int(trial["devices"]), int(said.group(1))
    return (stages - 1) / (parts + stages - 1)
