"""Strategies that aggregate the gradients of S bytes on n devices: messages, bytes and facts.

The legs are those of runners/pytorch/aggregation.py and runners/pytorch/host.py, in their order;
the fit of the link that moves bytes in the same way times each leg. `textbook` is the shorter
formula of the literature.
"""

from collections.abc import Callable, Mapping

from analysis.strategies.facts import Divided, Leg, Legs, Strategy, Work
from networks import work as of_network

ONE_BIT = 136 / 4096  # of the bytes of 1024 values: 128 bytes of signs and two means
NO_MODEL = "no model: its messages are the framework's own"
FACTORISED = ("no model: its time is that of products and orthogonalisations of each parameter's "
              "shape, which no link tells")


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
    return Strategy(host(link), by_host=True, after_backward=True, textbook=lambda work: [
        Leg("to_host", 1, work.size_bytes), Leg("from_host", 1, work.size_bytes),
        Leg(link, work.devices, work.devices * work.size_bytes)])


def all_reduced(divided: Divided) -> float:
    """An all-reduce of all gradients."""
    return 2 * (divided.devices - 1) * of_network.parameter_bytes(divided.network)


OWN = ("data_parallel", "device", "dist_device_sync", "dist_sync", "hierarchical_copy", "local",
       "multi_worker", "one_device")
STRATEGIES: Mapping[str, Strategy] = {
    "ddp": Strategy(library, bucketed=True, default=True, step_bytes=all_reduced),
    "all_reduce": Strategy(library, default=True, step_bytes=all_reduced),
    "nccl": Strategy(library, default=True),
    "ring": Strategy(ring, after_backward=True,
                     textbook=_sent(lambda work: 2 * (work.devices - 1),
                                    lambda work: 1 / work.devices)),
    "tree": Strategy(tree, after_backward=True,
                     textbook=_sent(lambda work: 2 * work.levels, lambda work: 1)),
    "gather": Strategy(gather, after_backward=True,
                       textbook=_sent(lambda work: 2 * (work.devices - 1), lambda work: 1)),
    "host_one": _by_host("host_sum_one"),
    "host_all": _by_host("host_sum_all"),
    # Its weights were 0.6 to 1.0 off after three steps, 3.0 in a bottleneck.
    "one_bit": Strategy(one_bit, share=ONE_BIT, after_backward=True, lossy=True,
                        keeps_only_sums=True),
    # What is not sent at all is 1.0 off. PowerSGD was 0.12 to 0.60 off on two CPU ranks (11
    # networks, lstm32 the worst), 0.33 to 0.58 on four. One rank's gradients instead of the mean
    # were 0.71 to 27 off, in 13 of 15 draws above 0.85.
    "power_sgd": Strategy(without=FACTORISED, lossy=True, later=(2, 0.85)),
    "bf16_compress": Strategy(halved, share=1 / 2, bucketed=True, lossy=True),
    **dict.fromkeys(OWN, Strategy(without=NO_MODEL)),
}
