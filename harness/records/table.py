"""Tables as the text of CSV files."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as CSV; what a row lacks, and NaN, is empty, and other keys are left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value != value else value for key, value in row.items()}
                     for row in rows)
    return text.getvalue()
