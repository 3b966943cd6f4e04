"""Which memory of a row compares with that of other rows, and what to call it.

On a GPU it is what the driver charges to a row's processes. Allocators count different things:
PyTorch's what it reserves, those of XLA, TensorFlow and Paddle what arrays take. Their counts stand
in only where a table has none of the driver's: one table, one quantity.
"""

import pandas as pd

HELD, COUNTED = "device_memory_bytes", "peak_memory_bytes"
HELD_NOTE = (
    "Held is what the driver charged to the worker's processes: contexts, libraries and "
    "allocators' pools. The pools of XLA and TensorFlow double as they grow, and a process can be "
    "told to hold less. Compare frameworks by what they hold, not by what their allocators count.")
COUNTED_NOTE = (
    "Do not compare frameworks by this memory. Each allocator counts its own way: PyTorch's "
    "includes what it keeps unused, those of XLA, TensorFlow and Paddle do not. The driver's "
    "count, by which they would compare, is missing.")
UNTOLD = "the driver did not say what they hold"


def compared(rows: pd.DataFrame) -> "pd.Series[float]":
    """Return the bytes of each row that compare with those of the others, NaN without any.

    `rows` are trials. If the driver told what any row holds on a GPU, a row on a GPU of which it
    told nothing has none.
    """
    counted, held = (rows[column].astype(float) for column in (COUNTED, HELD))
    return held.where(on_gpu(rows), counted) if by_driver(rows) else counted


def by_driver(rows: pd.DataFrame) -> bool:
    """Return whether the driver told what any row holds on a GPU."""
    return bool((on_gpu(rows) & rows[HELD].notna()).any())


def untold(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Say of each measured row whether it has no memory that compares, and others have."""
    return (rows["status"] == "ok") & rows[COUNTED].notna() & compared(rows).isna()


def names(rows: pd.DataFrame) -> "pd.Series[str]":
    """Name the quantity of each row."""
    of_gpu = "held on the GPU" if by_driver(rows) else "counted by its allocator"
    return pd.Series("resident memory", rows.index).mask(on_gpu(rows), of_gpu)


def title(rows: pd.DataFrame) -> str:
    """Say what a figure of all these rows shows."""
    of_gpu = ("Peak memory that the worker's processes hold on a GPU, allocators' pools included"
              if by_driver(rows) else
              "Peak memory as each allocator counts it: do not compare frameworks")
    kinds = on_gpu(rows)
    return "; ".join([of_gpu] * bool(kinds.any())
                     + ["Peak resident memory of the worker"] * bool((~kinds).any()))


def note(rows: pd.DataFrame) -> str:
    """Say how to read the memory of these rows; nothing of rows without a GPU."""
    measured = rows[on_gpu(rows) & (rows["status"] == "ok")]
    if measured[[HELD, COUNTED]].isna().all(axis=None):
        return ""
    empty = f" Rows without it: {UNTOLD}." if untold(rows).any() else ""
    return HELD_NOTE + empty if by_driver(measured) else COUNTED_NOTE


def on_gpu(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Say of each row whether it ran on a GPU."""
    return rows["device_kind"] == "cuda"
