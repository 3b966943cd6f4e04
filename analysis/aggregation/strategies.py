"""The model of each strategy of gradient aggregation: its messages, bytes and time.

S bytes of gradients on n devices. The legs are those of runners/pytorch/aggregation.py and
runners/pytorch/host.py, in their order; the fit of the link that moves bytes in the same way times
each leg. `textbook` is the shorter formula of the literature.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analysis.aggregation.links import Fit
from analysis.statistics.bootstrap import Estimate

ONE_BIT = 136 / 4096  # of the bytes of 1024 values: 128 bytes of signs and two means
NO_MODEL = "no model: its messages are the framework's own"
DIVIDES = "no model of its time: it sends in the midst of forward and backward"
FACTORISED = ("no model: its time is that of products and orthogonalisations of each parameter's "
              "shape, which no link tells")


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


Legs = Callable[[Work], list[Leg]]


@dataclass(frozen=True)
class Strategy:
    """What the model knows of a strategy.

    `share` is what it sends of each byte of gradients. With `bucketed`, DistributedDataParallel
    sends it in buckets; others send one flat buffer. A framework uses a `default` one unasked.
    """

    legs: Legs
    share: float = 1.0
    by_host: bool = False
    bucketed: bool = False
    default: bool = False
    textbook: Legs = lambda work: []


def ring(work: Work) -> list[Leg]:
    """2 (n - 1) shifts of S / n: half add up, half pass the sums on (Patarasu and Yuan 2009)."""
    n, size = work.devices, work.size_bytes
    return [*_packed(size, 1 / n), Leg("shift", 2 * (n - 1), 2 * (n - 1) / n * size),
            Leg("device_sum", n - 1, (n - 1) / n * size)]


def tree(work: Work) -> list[Leg]:
    """log2 n levels of pairs to the root, each adding up, and the same levels back."""
    levels, size = work.levels, work.size_bytes
    return [*_packed(size, 1), Leg("pair", 2 * levels, 2 * levels * size),
            Leg("device_sum", levels, levels * size)]


def gather(work: Work) -> list[Leg]:
    """All others send to one device at once, which adds up and sends the mean to all at once."""
    others, size = work.devices - 1, work.size_bytes
    return [*_packed(size, 1), Leg("fan_in", 1, others * size), Leg("fan_out", 1, others * size),
            Leg("device_sum", others, others * size)]


def host(link: str) -> Legs:
    """Every device copies up, the host adds n buffers, every device copies down.

    An addition touches three values, a copy and the division two, so n - 1 additions, a copy and a
    division are n + 1/3 additions.
    """
    def legs(work: Work) -> list[Leg]:
        size = work.size_bytes
        return [Leg("device_copy", 1, size), Leg("to_host", 1, size),
                Leg(link, 1, (work.devices + 1 / 3) * size), Leg("from_host", 1, size)]
    return legs


def one_bit(work: Work) -> list[Leg]:
    """1-bit SGD: gradients are packed, swapped, restored and averaged by parts, then the means.

    Copies touch 2 S: in and out S each, the average of n parts (n + 1) / n S.
    """
    n, size = work.devices, work.size_bytes
    swapped = Leg("swap", 1, (n - 1) / n * ONE_BIT * size)
    return [Leg("device_copy", 1, size), Leg("bit_pack", 1, size), swapped,
            Leg("bit_unpack", 1, size), Leg("device_copy", 1, (1 + 1 / n) / 2 * size),
            Leg("bit_pack", 1, size / n), swapped, Leg("bit_unpack", 1, size),
            Leg("device_copy", 1, size)]


def library(work: Work) -> list[Leg]:
    """The library's own all-reduce, a message a bucket."""
    return [Leg("all_reduce", 1, size) for size in work.sent]


def halved(work: Work) -> list[Leg]:
    """The library's all-reduce of half the bytes, rounded and divided by n before, restored after.

    A copy of S bytes touches 2 S; rounding and restoring touch 3/2 S each, the division S.
    """
    return [*(Leg("all_reduce", 1, size / 2) for size in work.sent),
            *(Leg("device_copy", 3, 2 * size) for size in work.sent)]


def _packed(size: float, scaled: float) -> list[Leg]:
    """Copy gradients into one buffer and divide `scaled` of the sum by n, on the busiest device."""
    return [Leg("device_copy", 2, (1 + scaled) * size)]


def _sent(count: Callable[[Work], float], share: Callable[[Work], float]) -> Legs:
    """`count` messages that carry `share` of the gradients each."""
    return lambda work: [Leg("send", count(work), count(work) * share(work) * work.size_bytes)]


def _by_host(link: str) -> Strategy:
    return Strategy(host(link), by_host=True, textbook=lambda work: [
        Leg("to_host", 1, work.size_bytes), Leg("from_host", 1, work.size_bytes),
        Leg(link, work.devices, work.devices * work.size_bytes)])


STRATEGIES: Mapping[str, Strategy] = {
    "ddp": Strategy(library, bucketed=True, default=True),
    "all_reduce": Strategy(library, default=True),
    "nccl": Strategy(library, default=True),
    "ring": Strategy(ring, textbook=_sent(lambda work: 2 * (work.devices - 1),
                                          lambda work: 1 / work.devices)),
    "tree": Strategy(tree, textbook=_sent(lambda work: 2 * work.levels, lambda work: 1)),
    "gather": Strategy(gather, textbook=_sent(lambda work: 2 * (work.devices - 1),
                                              lambda work: 1)),
    "host_one": _by_host("host_sum_one"),
    "host_all": _by_host("host_sum_all"),
    "one_bit": Strategy(one_bit, share=ONE_BIT),
    "bf16_compress": Strategy(halved, share=1 / 2, bucketed=True),
}


def missing(strategy: str, fits: Mapping[str, Fit]) -> str:
    """Return why a strategy cannot be predicted with these fits, or ""."""
    if strategy not in STRATEGIES:
        return FACTORISED if strategy == "power_sgd" else NO_MODEL
    legs = STRATEGIES[strategy].legs(Work(1.0, 2))
    absent = dict.fromkeys(leg.link for leg in legs if leg.link not in fits)
    return f"no fit of {', '.join(absent)}" if absent else ""


def predict(strategy: str, work: Work, fits: Mapping[str, Fit]) -> Estimate:
    """Predict the seconds of one aggregation."""
    return total(STRATEGIES[strategy].legs(work) if work.devices > 1 else [], fits)


def total(legs: list[Leg], fits: Mapping[str, Fit]) -> Estimate:
    """Add up legs, with the interval that the fits' intervals give; nan if a fit is missing.

    Links err independently, the legs over one of them alike.
    """
    if any(leg.link not in fits for leg in legs):
        return Estimate(math.nan, math.nan, math.nan, 0)
    seconds = sum(fits[leg.link].seconds(leg.messages, leg.size_bytes) for leg in legs)
    halves: dict[str, float] = {}
    for leg in legs:
        half = fits[leg.link].half_width(leg.messages, leg.size_bytes)
        halves[leg.link] = halves.get(leg.link, 0.0) + half
    half = math.hypot(*halves.values())
    return Estimate(seconds, max(0.0, seconds - half), seconds + half, 0)


def swept(legs: list[Leg], fits: Mapping[str, Fit]) -> float:
    """Add up legs by the measured points of their links; nan if a fit is missing."""
    if any(leg.link not in fits for leg in legs):
        return math.nan
    return sum(fits[leg.link].swept_seconds(leg.messages, leg.size_bytes) for leg in legs)


def wire_bytes(strategy: str, work: Work) -> float:
    """Bytes that all devices together send to each other in one aggregation, without the host's.

    Flags of the library's protocols are not counted; nan without a model.
    """
    if strategy not in STRATEGIES:
        return math.nan
    known = STRATEGIES[strategy]
    return 0.0 if known.by_host else 2 * (work.devices - 1) * work.size_bytes * known.share


def host_bytes(strategy: str, work: Work) -> float:
    """Bytes that all devices together copy to the host, and as many back; nan without a model."""
    if strategy not in STRATEGIES:
        return math.nan
    return work.devices * work.size_bytes if STRATEGIES[strategy].by_host else 0.0
