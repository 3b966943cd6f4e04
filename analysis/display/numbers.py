"""Numbers as text: three significant digits, a unit that fits, an interval in brackets."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.bootstrap import Estimate

Units = tuple[tuple[str, float], ...]  # from the largest down

TIME_UNITS: Units = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
BYTE_UNITS: Units = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
FLOPS_UNITS: Units = (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6))
JOULE_UNITS: Units = (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3))
NEAR_ONE = 0.1
ENDS = ("", "_low", "_high")  # of a column's name: its value, and the ends of its interval


def number(value: Any) -> str:
    """Write a number with three significant digits and no exponent; nothing for a missing one."""
    if pd.isna(value):
        return ""
    value = float(value)
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(0, 2 - int(np.floor(np.log10(abs(rounded)))))}f}"


def ratio(value: float, low: float, high: float) -> str:
    """Write a ratio and its interval; near 1 with three decimals: 1.003 (1.001 to 1.005)."""
    write = _decimals if abs(value - 1) < NEAR_ONE else number
    return f"{write(value)} ({write(low)} to {write(high)})"


def ratio_span(low: float, high: float) -> str:
    """Write the interval of a ratio; near 1 with three decimals: 0.997 to 1.002."""
    write = _decimals if max(abs(low - 1), abs(high - 1)) < NEAR_ONE else number
    return f"{write(low)} to {write(high)}"


def _decimals(value: float) -> str:
    return f"{value:.3f}"


def span(low: float, high: float) -> str:
    """Write an interval; nothing for a missing one."""
    return "" if pd.isna(low) or pd.isna(high) else f"{number(low)} to {number(high)}"


def with_span(value: float, low: float, high: float) -> str:
    """Write a number and, where it has one, its interval: 2.00 (1.90 to 2.10)."""
    return number(value) + (f" ({span(low, high)})" if span(low, high) else "")


def estimate(found: Estimate) -> str:
    """Write an estimate with its interval where it has one."""
    return with_span(found.value, found.low, found.high)


def cell(row: Any, name: str, scale: float = 1.0) -> str:
    """Write the value of a row's column NAME over `scale`, with its interval where it has one."""
    return with_span(*(row[f"{name}{end}"] / scale for end in ENDS))


def with_unit(value: float, units: Units) -> str:
    """Write a number in the unit that fits it; nothing for a missing one."""
    unit, scale = best_unit([value], units)
    return "" if pd.isna(value) else f"{number(value / scale)} {unit}"


def signed(value: float) -> str:
    """Write a difference, with its sign also where that is a plus."""
    return f"+{number(value)}" if value > 0 else number(value)


def error(value: float) -> str:
    """Write an error as in 1.2e-05; nothing for a missing one."""
    return "" if pd.isna(value) else f"{value:.1e}"


def percent(share: float, digits: str = ".3g") -> str:
    """Write a share in percent; nothing for a missing one."""
    return "" if pd.isna(share) else f"{100 * share:{digits}} %"


def best_unit(values: "Iterable[float] | pd.Series[Any]", units: Units) -> tuple[str, float]:
    """Choose the largest unit in which the middle value is at least 1."""
    known = [float(value) for value in values if not pd.isna(value)]
    middle = np.median(known) if known else units[0][1]
    return next((unit for unit in units if middle >= unit[1]), units[-1])
