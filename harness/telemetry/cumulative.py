"""Totals since a first reading, from counters that wrap, stop or start anew and from sensors that show a rate.

A total that cannot be trusted between two readings says so in words and goes on from the newer one; nothing here asks a device.
"""

from collections.abc import Mapping

# A counter may show traffic a little after it happened, so that much more than the link can carry between two readings is allowed.
LATENCY_SECONDS = 0.02
LONGEST_POWER_GAP_SECONDS = 0.5  # a trapezoid over more than this is a guess
GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # PCI Express: each lane's, 1e9 a second, by generation


class Count:
    """The total of a raw counter. `wraps_at` is where it starts anew (None: never), `fastest` the most it can count a second."""

    def __init__(self, wraps_at: float | None = None, fastest: float | None = None):
        self.wraps_at = wraps_at
        self.fastest = fastest
        self.total = 0.0
        self.last: tuple[float, float] | None = None  # raw value, seconds

    def add(self, raw: float, seconds: float) -> str:
        """Take a reading; returns why the total is broken since the one before, or nothing."""
        before, self.last = self.last, (raw, seconds)
        if before is None:
            return ""
        gap = seconds - before[1]
        if gap < 0:
            self.last = before
            return _older(gap)
        if self.wraps_at and self.fastest and gap * self.fastest >= self.wraps_at:
            unseen = 1e3 * self.wraps_at / self.fastest
            return f"no reading for {1e3 * gap:.0f} ms, and the counter can wrap unseen in {unseen:.0f} ms"
        change = raw - before[0]
        if change < 0:
            if self.wraps_at is None:
                return "the counter was reset"
            change += self.wraps_at
        if self.fastest and change > self.fastest * (gap + LATENCY_SECONDS):
            return "the counter was reset: it moved by more than the link can carry"
        self.total += change
        return ""


class Integral:
    """The integral over time of a rate that is read now and then, by trapezoids."""

    def __init__(self) -> None:
        self.total = 0.0
        self.last: tuple[float, float] | None = None  # rate, seconds

    def add(self, rate: float, seconds: float) -> str:
        """Take a reading; returns why the total is broken since the one before, or nothing."""
        before, self.last = self.last, (rate, seconds)
        if before is None:
            return ""
        gap = seconds - before[1]
        if gap < 0:
            self.last = before
            return _older(gap)
        if gap > LONGEST_POWER_GAP_SECONDS:
            return f"no reading for {1e3 * gap:.0f} ms"
        self.total += (before[0] + rate) / 2 * gap
        return ""


def pcie_bytes_per_second(generation: int | None, width: int | None) -> float:
    """Say what a PCI Express link carries at most in one direction; the fastest one known where it cannot be told.

    Transfers x lanes x line code: 8b/10b in the first two generations, 128b/130b from the third on (PCI Express Base
    Specification). Packet headers are traffic too, and the counters count them, so they are not taken off.
    """
    generation = generation if generation in GIGATRANSFERS else max(GIGATRANSFERS)
    code = 8 / 10 if generation < 3 else 128 / 130
    return GIGATRANSFERS[generation] * 1e9 * (width or 16) * code / 8


def joined(reasons: Mapping[str, str]) -> str:
    """Put reasons by what they concern into one cell: `pcie: no reading for 90 ms; energy: ...`."""
    return "; ".join(dict.fromkeys(f"{what}: {why}" for what, why in reasons.items() if why))


def _older(gap: float) -> str:
    """Say that a reading came after a newer one: a driver answered late."""
    return f"a reading that is {-1e3 * gap:.0f} ms older than the one before"
