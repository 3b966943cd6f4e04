"""What each strategy of gradient aggregation takes by its model: legs over fitted links, and the bytes that go over each wire.

S bytes of gradients on n devices. The legs are those of runners/pytorch/aggregation.py and runners/pytorch/host.py, in their order;
each is timed by the fit of the link that moves bytes in the same way. `textbook` is the shorter formula of the literature.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analysis.aggregation.links import Fit
from analysis.statistics.bootstrap import Estimate

ONE_BIT = 136 / 4096  # of the bytes of 1024 values: 128 bytes of signs and two means


@dataclass(frozen=True)
class Work:
    """What is to be aggregated: bytes of gradients over so many devices; `buckets` are the bytes of each message of a library."""

    size_bytes: float
    devices: int
    buckets: tuple[float, ...] = ()  # one of all bytes

    @property
    def sent(self) -> tuple[float, ...]:
        return self.buckets or (self.size_bytes,)


@dataclass(frozen=True)
class Leg:
    """One part of a strategy: `messages` one after another over a link, which carry `size_bytes` together."""

    link: str
    messages: float
    size_bytes: float


def ring(work: Work) -> list[Leg]:
    """2 (n - 1) shifts of S / n: half of them add up, half pass the sums on (Patarasu and Yuan 2009)."""
    n, size = work.devices, work.size_bytes
    return [*_packed(size, 1 / n), Leg("shift", 2 * (n - 1), 2 * (n - 1) / n * size), Leg("device_sum", n - 1, (n - 1) / n * size)]


def tree(work: Work) -> list[Leg]:
    """log2 n levels of pairs to the root, each adding up, and the same levels back."""
    levels, size = _levels(work.devices), work.size_bytes
    return [*_packed(size, 1), Leg("pair", 2 * levels, 2 * levels * size), Leg("device_sum", levels, levels * size)]


def gather(work: Work) -> list[Leg]:
    """All others send to one device at once, which adds up and sends the mean back to all at once."""
    others, size = work.devices - 1, work.size_bytes
    return [*_packed(size, 1), Leg("fan_in", 1, others * size), Leg("fan_out", 1, others * size),
            Leg("device_sum", others, others * size)]


def host_one(work: Work) -> list[Leg]:
    """Every device copies up, one thread of the host adds n buffers, every device copies down."""
    return _host(work, "host_sum_one")


def host_all(work: Work) -> list[Leg]:
    """The same, added by all threads of the host."""
    return _host(work, "host_sum_all")


def one_bit(work: Work) -> list[Leg]:
    """1-bit SGD: all gradients packed, swapped, restored and averaged by parts; the means packed, swapped, restored and copied out.

    Copies touch 2 S: in and out S each, the average of n parts (n + 1) / n S.
    """
    n, size = work.devices, work.size_bytes
    swapped = Leg("swap", 1, (n - 1) / n * ONE_BIT * size)
    return [Leg("device_copy", 1, size), Leg("bit_pack", 1, size), swapped, Leg("bit_unpack", 1, size),
            Leg("device_copy", 1, (1 + 1 / n) / 2 * size), Leg("bit_pack", 1, size / n), swapped, Leg("bit_unpack", 1, size),
            Leg("device_copy", 1, size)]


def library(work: Work) -> list[Leg]:
    """The library's own all-reduce, a message a bucket."""
    return [Leg("all_reduce", 1, size) for size in work.sent]


def halved(work: Work) -> list[Leg]:
    """The library's all-reduce of half the bytes; each value is rounded and divided by n before, and restored after.

    A copy of S bytes touches 2 S; rounding and restoring touch 3/2 S each, and the division of what was rounded S.
    """
    return [*(Leg("all_reduce", 1, size / 2) for size in work.sent), *(Leg("device_copy", 3, 2 * size) for size in work.sent)]


def _packed(size: float, scaled: float) -> list[Leg]:
    """Gradients are copied into one buffer, and what was added is divided by n: `scaled` of them on the busiest device."""
    return [Leg("device_copy", 2, (1 + scaled) * size)]


def _levels(devices: int) -> int:
    return math.ceil(math.log2(devices))


def _host(work: Work, link: str) -> list[Leg]:
    """A copy, n - 1 additions and a division: an addition touches three values, the others two, so they are n + 1/3 additions."""
    size = work.size_bytes
    added = Leg(link, 1, (work.devices + 1 / 3) * size)
    return [Leg("device_copy", 1, size), Leg("to_host", 1, size), added, Leg("from_host", 1, size)]


def textbook(strategy: str, work: Work) -> list[Leg]:
    """The formula that papers give: messages over one kind of link, sums on devices for nothing. Empty where there is none."""
    n, size, levels = work.devices, work.size_bytes, _levels(work.devices)
    up_and_down = [Leg("to_host", 1, size), Leg("from_host", 1, size)]
    return {
        "ring": [Leg("send", 2 * (n - 1), 2 * (n - 1) / n * size)],
        "tree": [Leg("send", 2 * levels, 2 * levels * size)],
        "gather": [Leg("send", 2 * (n - 1), 2 * (n - 1) * size)],
        "host_one": [*up_and_down, Leg("host_sum_one", n, n * size)],
        "host_all": [*up_and_down, Leg("host_sum_all", n, n * size)],
    }.get(strategy, [])


STRATEGIES: Mapping[str, Callable[[Work], list[Leg]]] = {
    "ddp": library, "all_reduce": library, "nccl": library, "ring": ring, "tree": tree, "gather": gather, "host_one": host_one,
    "host_all": host_all, "one_bit": one_bit, "bf16_compress": halved,
}
SENT: Mapping[str, float] = {**dict.fromkeys(STRATEGIES, 1.0), "bf16_compress": 1 / 2, "one_bit": ONE_BIT}  # of each byte
NO_MODEL = "no model: its messages are the framework's own"
FACTORISED = "no model: its time is that of products and orthogonalisations of each parameter's shape, which no link tells"


def missing(strategy: str, fits: Mapping[str, Fit]) -> str:
    """Why a strategy cannot be predicted with these fits; empty where it can."""
    if strategy not in STRATEGIES:
        return FACTORISED if strategy == "power_sgd" else NO_MODEL
    absent = dict.fromkeys(leg.link for leg in STRATEGIES[strategy](Work(1.0, 2)) if leg.link not in fits)
    return f"no fit of {', '.join(absent)}" if absent else ""


def predict(strategy: str, work: Work, fits: Mapping[str, Fit]) -> Estimate:
    """Predict the seconds of one aggregation."""
    return total(STRATEGIES[strategy](work) if work.devices > 1 else [], fits)


def total(legs: list[Leg], fits: Mapping[str, Fit]) -> Estimate:
    """Add up legs, with the interval that the fits' own intervals give. nan where a fit is missing.

    Links err independently, the legs over one of them alike.
    """
    if any(leg.link not in fits for leg in legs):
        return Estimate(math.nan, math.nan, math.nan, 0)
    seconds = sum(fits[leg.link].seconds(leg.messages, leg.size_bytes) for leg in legs)
    halves: dict[str, float] = {}
    for leg in legs:
        halves[leg.link] = halves.get(leg.link, 0.0) + fits[leg.link].half_width(leg.messages, leg.size_bytes)
    half = math.hypot(*halves.values())
    return Estimate(seconds, max(0.0, seconds - half), seconds + half, 0)


def swept(legs: list[Leg], fits: Mapping[str, Fit]) -> float:
    """Add up legs by the measured points of their links instead of the lines through them. nan where a fit is missing."""
    if any(leg.link not in fits for leg in legs):
        return math.nan
    return sum(fits[leg.link].swept_seconds(leg.messages, leg.size_bytes) for leg in legs)


def wire_bytes(strategy: str, work: Work) -> float:
    """Bytes that all devices together send to each other in one aggregation; those to and from the host are `host_bytes`.

    Without flags of the library's protocols. nan where no model tells.
    """
    n, size = work.devices, work.size_bytes
    if strategy in ("host_one", "host_all"):
        return 0.0
    if strategy not in SENT:
        return math.nan
    return 2 * (n - 1) * size * SENT[strategy]  # ring, tree and gather alike


def host_bytes(strategy: str, work: Work) -> float:
    """Bytes that all devices together copy to the host, and as many back. nan where no model tells."""
    if strategy not in SENT:
        return math.nan
    return work.devices * work.size_bytes if strategy in ("host_one", "host_all") else 0.0
