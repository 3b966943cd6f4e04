"""What strategies that divide the network send in a step, and how long a pipeline's stages idle.

Bytes are those of all devices together, without protocol. They follow from the network, the global
batch and how the runner says it has divided the network (its settings). A ring all-reduce of S
bytes among n devices sends 2 (n - 1) S, gathering or scattering S bytes sends (n - 1) S.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from analysis.strategies.facts import FLOAT, Divided, Strategy

DIVIDES = "no model of its time: it sends in the midst of forward and backward"
# Of the loss of divided logits, for each label: the largest logit, the sum, the label's logit.
LOSS_SUMS = 3


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


def bubble(trial: Mapping[Any, Any], settings: str) -> float:
    """Return the share of a step in which a stage waits: (p - 1) / (m + p - 1); else nan.

    p equal stages take m micro-batches one after another, forward and backward. GPipe and 1F1B wait
    equally long (Narayanan et al., arXiv 2104.04473).
    """
    said = re.search(r"(?:^|; )(\d+) micro-batches", settings)
    if not said:
        return math.nan
    stages, parts = int(trial["devices"]), int(said.group(1))
    return (stages - 1) / (parts + stages - 1)


STRATEGIES: Mapping[str, Strategy] = {
    name: Strategy(without=DIVIDES, step_bytes=model, divides=True)
    for name, model in (("tensor", tensor), ("pipeline_gpipe", pipeline),
                        ("pipeline_1f1b", pipeline), ("fsdp", fully_sharded))}
