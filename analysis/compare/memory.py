"""Compares what both sides of a comparison hold on a GPU: a verdict, and how to show it.

A side differs if its processes do not overlap with the other's. That assumes nothing of how pools
grow, which in some frameworks differs between processes.
"""

import math
from collections.abc import Sequence

import pandas as pd

from analysis.compare import calls
from analysis.display import memory
from analysis.display.memory import COUNTED, HELD
from analysis.display.numbers import BYTE_UNITS, best_unit, number
from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW

MORE, LESS = "more", "less"
VERDICT = "memory_verdict"
# Columns of comparisons whose driver told what processes held.
COLUMNS = (f"{HELD}_a", f"{HELD}_b", VERDICT)
HOW_TO_READ = (" Memory is `more` or `less` where each process of B holds more, or less, than each "
               "of A, and enough of them ran to rule out chance.")


def verdict(ours: Sequence[float], theirs: Sequence[float], alpha: float) -> str:
    """Say whether B's processes hold more or less than A's, "" where the driver told nothing.

    If both sides were equal, all orders of their processes would be as likely. Two of them keep
    the sides apart.
    """
    if not len(ours) or not len(theirs):
        return ""
    if min(theirs) <= max(ours) and min(ours) <= max(theirs):
        return NO_DIFFERENCE
    if 2 / math.comb(len(ours) + len(theirs), len(ours)) > alpha:
        return TOO_FEW
    return MORE if min(theirs) > max(ours) else LESS


def by_driver(rows: pd.DataFrame, compared: "pd.Series[bool]") -> bool:
    """Return whether both sides of every compared row on a GPU have the driver's count."""
    kept = compared & memory.on_gpu(rows)
    return bool(HELD + "_a" in rows and kept.any()
                and rows.loc[kept, [*COLUMNS[:2]]].notna().all(axis=None))


def column(rows: pd.DataFrame, compared: "pd.Series[bool]") -> tuple[str, list[str]]:
    """Return the heading and the cells of both sides' memory, in one quantity on GPUs."""
    told, on_gpu = by_driver(rows, compared), memory.on_gpu(rows)
    pairs = pd.DataFrame({side: rows[f"{COUNTED}_{side}"].astype("Float64") for side in "ab"})
    if told:
        for side in "ab":
            pairs[side] = pairs[side].where(~on_gpu, rows[f"{HELD}_{side}"].astype("Float64"))
    sizes = pairs.to_numpy(float, na_value=math.nan)
    unit, scale = best_unit(sizes.ravel(), BYTE_UNITS)
    heading = "held on the GPU" if told and on_gpu.all() else "memory"
    words = rows[VERDICT].fillna("") if told else [""] * len(rows)
    return f"{heading} A, B ({unit})", [
        ": ".join(filter(None, [", ".join(filter(None, map(number, pair))), word]))
        for pair, word in zip(sizes / scale, words, strict=True)]


def note(rows: pd.DataFrame, compared: "pd.Series[bool]") -> str:
    """Say what the memory of these rows is."""
    if not memory.on_gpu(rows).any():
        return f"Memory is the peak while {'running' if calls.prefixes(rows) else 'training'}."
    if by_driver(rows, compared):
        return memory.HELD_NOTE + HOW_TO_READ
    return memory.COUNTED_NOTE
