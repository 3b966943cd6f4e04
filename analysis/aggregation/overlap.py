"""When aggregation hides behind the backward pass: the layer-wise model of Shi and Chu.

The sum of a layer's gradients may start once they are ready and the link is free. A layer's share
of the measured backward pass follows its multiply-adds (networks/work.py), so layers without
products count as free, which they are not. Source: Shi, Wang, Chu and Li 2018, "A DAG model of
synchronous stochastic gradient descent in distributed deep learning", arXiv 1805.03812.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from networks import Network, work

# DistributedDataParallel's defaults.
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20
GROUPINGS = ("layer", "bucket", "whole")


@dataclass(frozen=True)
class Gradient:
    """Gradients that are sent together, and when they are ready after the backward pass starts."""

    name: str
    size_bytes: float
    ready_seconds: float


@dataclass(frozen=True)
class Overlap:
    """Seconds of all transfers, and of those that the backward pass does not hide."""

    aggregation_seconds: float
    exposed_seconds: float


def gradients(network: Network, backward_seconds: float, grouping: str) -> list[Gradient]:
    """List the messages in order: a `layer` each, DDP's `bucket`s, or the `whole` at the end."""
    by_layer = _layers(network, backward_seconds)
    if grouping == "layer":
        return by_layer
    if grouping == "whole":
        return [Gradient("all", sum(each.size_bytes for each in by_layer), backward_seconds)]
    buckets: list[Gradient] = []
    waiting: list[Gradient] = []
    for each in by_layer:
        waiting.append(each)
        size = sum(gradient.size_bytes for gradient in waiting)
        if size >= (BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES) or each is by_layer[-1]:
            buckets.append(Gradient(f"{waiting[0].name} to {each.name}", size, each.ready_seconds))
            waiting = []
    return buckets


def overlap(sent: Sequence[Gradient], backward_seconds: float,
            seconds_of: Callable[[float], float]) -> Overlap:
    """Send each gradient when it is ready and the link is free; `seconds_of` takes bytes."""
    free, total = 0.0, 0.0
    for each in sent:
        seconds = seconds_of(each.size_bytes)
        free = max(free, each.ready_seconds) + seconds
        total += seconds
    return Overlap(total, max(0.0, free - backward_seconds))


def _layers(network: Network, backward_seconds: float) -> list[Gradient]:
    """List the trained layers, from the last to the first."""
    counts = {name: backward for name, (_, backward) in work.multiply_adds(network).items()}
    total, done, found = sum(counts.values()), 0, []
    for layer in reversed(network.layers):
        done += counts[layer.name]
        if layer.parameter_count:
            size = work.FLOAT_BYTES * layer.parameter_count
            found.append(Gradient(layer.name, size, backward_seconds * done / total))
    return found
