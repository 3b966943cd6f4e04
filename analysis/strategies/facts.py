"""What can be said of a strategy: how its messages are timed, what they carry, how it is proved.

The facts of each strategy stand beside its formulas, in `aggregating` or `dividing`; `table` has
all of them. What PyTorch's own strategies need to train stands in their classes
(`runners.pytorch.aggregation`), which nothing here imports.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import networks

FLOAT, HALF = 4, 2
# Layers whose output has the format of their input.
KEEP_FORMAT = ("relu", "sigmoid", "gelu", "flatten", "tokens", "class_token", "first_token")
PRODUCTS = ("dense", "tied_dense", "conv2d", "attention")


@dataclass(frozen=True)
class Work:
    """What is aggregated: bytes of gradients over devices; a library sends one message a bucket."""

    size_bytes: float
    devices: int
    buckets: tuple[float, ...] = ()  # one of all bytes

    @property
    def levels(self) -> int:
        return math.ceil(math.log2(self.devices))

    @property
    def sent(self) -> tuple[float, ...]:
        return self.buckets or (self.size_bytes,)


@dataclass(frozen=True)
class Leg:
    """`messages` one after another over a link, which carry `size_bytes` together."""

    link: str
    messages: float
    size_bytes: float


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


Legs = Callable[[Work], list[Leg]]


@dataclass(frozen=True)
class Strategy:
    """What the analysis knows of a strategy. Without `legs`, `without` says why.

    `share` is what it sends of each byte of gradients, `step_bytes` what all devices send in a
    step as the network is divided. With `bucketed`, DistributedDataParallel sends gradients in
    buckets; others send one flat buffer. A framework uses a `default` one unasked.
    """

    legs: Legs | None = None
    without: str = ""
    share: float = 1.0
    textbook: Legs = lambda work: []
    step_bytes: Callable[[Divided], float] | None = None
    by_host: bool = False
    bucketed: bool = False
    default: bool = False
    # Aggregates once all gradients are there.
    after_backward: bool = False
    # Devices hold a part of the network each.
    divides: bool = False
    # Does not send the whole gradient.
    lossy: bool = False
    # May move each weight as it likes; the sum over steps is right.
    keeps_only_sums: bool = False
    # First steps that are sent whole, and how much of the others' moves may be missing.
    later: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        if not self.legs and not self.without:
            raise ValueError("a strategy has the legs of its messages, or says why it has none")
