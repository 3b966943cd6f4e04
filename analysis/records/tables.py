"""Reads a table of a campaign or study, and says what in a row no reader would take.

A campaign may have been killed at any moment, so an unfinished last line is left out.
"""

import csv
import io
import math
import os
import reprlib
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records import packed
from analysis.records.columns import (
    LARGEST_WHOLE,
    MAY_BE_INFINITE,
    MEASURED,
    TABLES,
    WHOLE_NUMBERS,
)
from analysis.records.text import BadRecords

# The last pandas for Python 3.10 is 2.3.
PANDAS = int(pd.__version__.partition(".")[0])


def read_table(file: Path, columns: Mapping[str, type],
               late: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV with at least `columns`, in their types. A missing file is an empty table.

    Those that are `late` may be absent.
    """
    exists = os.path.lexists(packed.find(file))
    needed = [name for name in columns if name not in late]
    text = packed.read_text(file) if exists else ",".join(needed) + "\n"
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        warnings.warn(f"{file}: the last line is unfinished (killed while writing) "
                      "and was left out", stacklevel=3)
    header, *rows = _rows(file, whole) or [[]]
    missing = [name for name in needed if name not in header]
    if missing or len(set(header)) < len(header):
        twice = next((name for name in header if header.count(name) > 1), "")
        what = f"no column {missing[0]}" if missing else f"two columns {twice!r}"
        raise BadRecords(f"{file}: {what}; restore the file from a copy or run the suite again")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise BadRecords(f"{file}: row {number} has {len(row)} fields, "
                             f"the header has {len(header)}; delete that row")
    texts = pd.DataFrame(rows, columns=header, dtype=str)
    read = {name: numbers(texts[name], file, kind)
            for name, kind in columns.items() if kind is not str and name in header}
    # Made at once, so that columns of one type lie together: several times as fast to search.
    return pd.DataFrame({name: read.get(name, texts[name]) for name in header},
                        index=texts.index, columns=header)


def _rows(file: Path, text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        rows.extend(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise BadRecords(f"{file}: row {len(rows) + 1}: {error}; delete that row") from None
    return rows


def count_rows(file: Path) -> tuple[int, bool]:
    """Return how many rows a table has, and whether the last one is whole."""
    text = packed.read_text(file) if os.path.lexists(packed.find(file)) else ""
    whole = text[:text.rfind("\n") + 1]
    return max(0, len(_rows(file, whole)) - 1), whole == text


def numbers(column: "pd.Series[str]", file: Path, kind: type) -> "pd.Series[Any]":
    """Turn text into numbers. An empty cell is nan in a float column and an error in an int one."""
    text = column.to_numpy(object)
    # NumPy's operations, as pandas's take ten times as long on columns this short.
    values = np.asarray(pd.to_numeric(text, errors="coerce"), float)
    if PANDAS < 3:
        # Its numbers may be off in the last digit, and audits compare all of them.
        read = np.isfinite(values)
        values[read] = [float(cell) for cell in text[read]]
    bad = np.isnan(values)
    if kind is not int:
        bad[bad] = [cell != "" and cell.lower() != "nan" for cell in text[bad]]
    if column.name not in MAY_BE_INFINITE:
        bad |= np.isinf(values)
    whole = kind is int or column.name in WHOLE_NUMBERS
    if whole:
        known = np.isfinite(values)
        bad[known] |= (np.fmod(values[known], 1) != 0) | (abs(values[known]) > LARGEST_WHOLE)
    if bad.any():
        row = int(bad.argmax())
        wanted, found = "a whole number" if whole else "a number", column.iloc[row][:80]
        raise BadRecords(
            f"{file}: column {column.name}, row {row + 2}: {found!r} is not {wanted}; "
            "delete that row and let `dlbench run --resume` measure it again")
    return pd.Series(values.astype(int) if kind is int else values, column.index, name=column.name)


def fault_of(table: str, row: Mapping[str, Any]) -> str:
    """Say what in a row that is about to be written no reader would take; empty if nothing."""
    for name, kind in TABLES[table].items():
        value = row.get(name, "")
        if kind is str or value is None or (isinstance(value, str) and not value):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return f"{name}: came {reprlib.repr(value)}, expected a number"
        number = _float(value)
        if math.isnan(number) and (kind is int or name in MEASURED):
            return f"{name}: came nan, expected a number"
        if math.isinf(number) and name not in MAY_BE_INFINITE:
            return f"{name}: came {value}, expected a finite number"
        whole = kind is int or name in WHOLE_NUMBERS
        if whole and not math.isnan(number) and (number % 1 or abs(number) > LARGEST_WHOLE):
            return f"{name}: came {reprlib.repr(value)}, expected a whole number"
    return ""


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # of a whole number
        return math.inf
