"""The studies whose pages are made from their records alone, by name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.records import pages
from analysis.records.text import BadRecords
from analysis.studies import attention, conv, gemm, layers

STUDIES: Mapping[str, Callable[..., Path]] = {
    "gemm": gemm.write, "conv": conv.write, "layers": layers.write,
    "attention": attention.write}
# These show what the frameworks of recorded campaigns call: the option `campaigns`.
OF_CAMPAIGNS = ("gemm", "conv")


def write(folders: Sequence[Path], out: Path, **options: Any) -> Path:
    """Write the page of a study, or of several of one kind, and return it. Raises BadRecords.

    `options` go to the study's own `write`.
    """
    found = set()
    for folder in folders:
        file = folder / "study.json"
        meta = pages.read_page(file, "")
        pages.check_page(file, meta, pages.StudyPage)
        found.add(meta["study"])
    name = found.pop()
    if found or name not in STUDIES:
        known = ", ".join(STUDIES)
        raise BadRecords(f"{folders[0] / 'study.json'}: report writes pages of one study: {known}; "
                         f"found {', '.join([name, *found])}")
    return STUDIES[name](folders, out, **options)
