"""What a reader of a published campaign should know although nothing in it is wrong."""

import warnings
from pathlib import Path

from analysis.records import reader
from analysis.records.reader import BadRecords
from analysis.trials import effort


def remarks(folder: str | Path) -> list[str]:
    """Return the remarks on a campaign; none on a study or on records that `audit` cannot read."""
    if not (Path(folder) / "campaign.json").is_file():
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return effort.remarks(reader.read(folder))
    except (BadRecords, KeyError, TypeError, ValueError, AttributeError):
        return []  # `audit` has named the fault
