"""Totals from counters that wrap or are reset, and from sensors that show a rate.

When a total cannot be trusted between two readings, `add` returns why and goes on from the newer.
"""

from collections.abc import Mapping

from analysis.proof.plausibility import LANE_BYTES_PER_SECOND

# A counter may show traffic late, so it may move by this much more than the link can carry.
LATENCY_SECONDS = 0.02
# A trapezoid over a longer gap is a guess.
LONGEST_POWER_GAP_SECONDS = 0.5


class Total:
    """A total over readings in the order of time."""

    def __init__(self) -> None:
        self.total = 0.0
        # Value, seconds.
        self.last: tuple[float, float] | None = None

    def add(self, value: float, seconds: float) -> str:
        """Add a reading; return why the total is broken since the one before, or ""."""
        before, self.last = self.last, (value, seconds)
        if before is None:
            return ""
        gap = seconds - before[1]
        if gap < 0:
            self.last = before
            return f"a reading that is {-1e3 * gap:.0f} ms older than the one before"
        return self._grow(before[0], value, gap)

    def _grow(self, before: float, value: float, gap: float) -> str:
        raise NotImplementedError


class Count(Total):
    """The total of a raw counter that starts anew at `wraps_at` and counts `fastest` a second."""

    def __init__(self, wraps_at: float | None = None, fastest: float | None = None):
        super().__init__()
        self.wraps_at = wraps_at
        self.fastest = fastest

    def _grow(self, before: float, value: float, gap: float) -> str:
        if self.wraps_at and self.fastest and gap * self.fastest >= self.wraps_at:
            unseen = 1e3 * self.wraps_at / self.fastest
            return (f"no reading for {1e3 * gap:.0f} ms, and the counter can wrap unseen "
                    f"in {unseen:.0f} ms")
        change = value - before
        if change < 0:
            if self.wraps_at is None:
                return "the counter was reset"
            change += self.wraps_at
        if self.fastest and change > self.fastest * (gap + LATENCY_SECONDS):
            return "the counter was reset: it moved by more than the link can carry"
        self.total += change
        return ""


class Integral(Total):
    """The integral of a rate over time, by trapezoids."""

    def _grow(self, before: float, value: float, gap: float) -> str:
        if gap > LONGEST_POWER_GAP_SECONDS:
            return f"no reading for {1e3 * gap:.0f} ms"
        self.total += (before + value) / 2 * gap
        return ""


def pcie_bytes_per_second(generation: int | None, width: int | None) -> float:
    """Return what a PCI Express link carries at most in one direction (unknown: the fastest link).

    The counters count packet headers too, so they are not subtracted.
    """
    lane = LANE_BYTES_PER_SECOND.get(generation or 0, max(LANE_BYTES_PER_SECOND.values()))
    return lane * (width or 16)


def joined(reasons: Mapping[str, str]) -> str:
    """Join reasons into one cell: `pcie: no reading for 90 ms; energy: ...`."""
    return "; ".join(dict.fromkeys(f"{what}: {why}" for what, why in reasons.items() if why))
