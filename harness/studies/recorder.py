"""Writes a study's folder: study.json, points.csv and measurements.csv.

The rows of a point are on disk as soon as it is done. docs/reference/records.md defines the
columns; `analysis.records.study_reader` reads them.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.records import packed, study_reader
from analysis.records.study_reader import MEASUREMENT_COLUMNS
from harness.campaign.recorder import Folder
from harness.errors import WrongUse
from harness.records.table import text_of


class StudyRecorder(Folder):
    """The open folder of a study."""

    page = "study.json"

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows under the header that the file has; an earlier release's has fewer columns."""
        file = self.folder / "measurements.csv"
        with file.open("a+", newline="", encoding="utf-8") as table:
            table.seek(0)
            header = table.readline().strip().split(",")
            writer = csv.DictWriter(table, header, restval="", extrasaction="ignore",
                                    lineterminator="\n")
            writer.writerows(rows)

    def introduce(self, bench: str, hello: Mapping[str, Any]) -> None:
        """Keep what a worker says of itself: its release, its device, its libraries."""
        said = {key: value for key, value in hello.items() if key != "pid"}
        self.update(workers={**self.meta().get("workers", {}), bench: said})


def open_study(folder: Path, page: Mapping[str, Any], points: Mapping[str, Mapping[str, Any]]
               ) -> StudyRecorder:
    """Begin a study in `folder`, or continue it. Raises WrongUse if it has other points."""
    recorder = StudyRecorder(folder)
    columns = dict.fromkeys(key for point in points.values() for key in point)
    table = text_of(list(columns), points.values())
    if not (folder / "study.json").exists():
        recorder.begin(page, {"points.csv": table,
                              "measurements.csv": ",".join(MEASUREMENT_COLUMNS) + "\n"})
    elif packed.read_text(folder / "points.csv") != table:
        raise WrongUse(f"{folder}: the study there has other points; "
                       "resume with the options that began it")
    else:
        packed.unpack_folder(folder)
    return recorder


def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge the parts of a study into one folder. Raises WrongUse if they do not match.

    The page is the first part's; it names them all.
    """
    pages = [study_reader.read(folder).meta for folder in folders]
    if len({page["study"] for page in pages}) > 1:
        raise WrongUse(f"{', '.join(map(str, folders))}: different studies; name parts of one")
    ends = [page["finished"] for page in pages]
    page = {**pages[0], "name": out.name, "started": min(page["started"] for page in pages),
            "finished": None if None in ends else max(ends),
            "parts": [{key: page[key] for key in ("name", "started", "finished", "source_hash")}
                      for page in pages]}
    files = {}
    for name in ("points.csv", "measurements.csv"):
        texts = [packed.read_text(folder / name).splitlines(keepends=True) for folder in folders]
        if len({text[0] for text in texts}) > 1:
            raise WrongUse(f"{name}: the parts have other columns, because different releases of "
                           "dlbench measured them; measure all parts with one")
        files[name] = "".join([texts[0][0], *(line for text in texts for line in text[1:])])
    StudyRecorder(out).begin(page, files)
