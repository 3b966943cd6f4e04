"""Writes a study's folder: study.json, points.csv and measurements.csv.

The rows of a point are on disk as soon as it is done. docs/reference/records.md defines the columns;
`analysis.records.study_reader` reads them.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.records import packed, study_reader
from analysis.records.study_reader import MEASUREMENT_COLUMNS
from harness.errors import WrongUse


class Records:
    """The open folder of a study."""

    def __init__(self, folder: Path):
        self.folder = folder

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        file = self.folder / "measurements.csv"
        with file.open("a", newline="", encoding="utf-8") as table:
            writer = csv.DictWriter(table, MEASUREMENT_COLUMNS, restval="", lineterminator="\n")
            writer.writerows(rows)

    def introduce(self, bench: str, hello: Mapping[str, Any]) -> None:
        """Keep what a worker says of itself: its release, its device, its libraries."""
        said = {key: value for key, value in hello.items() if key != "pid"}
        self.update(workers={**self.page().get("workers", {}), bench: said})

    def page(self) -> dict[str, Any]:
        page: dict[str, Any] = json.loads((self.folder / "study.json").read_text(encoding="utf-8"))
        return page

    def update(self, **fields: Any) -> None:
        self.write({**self.page(), **fields})

    def write(self, page: Mapping[str, Any]) -> None:
        (self.folder / "study.json").write_text(json.dumps(page, indent=1), encoding="utf-8")


def open_records(folder: Path, page: Mapping[str, Any], points: Mapping[str, Mapping[str, Any]]
                 ) -> Records:
    """Begin a study in `folder`, or continue it. Raises WrongUse if it has other points."""
    table = io.StringIO()
    columns = dict.fromkeys(key for point in points.values() for key in point)
    writer = csv.DictWriter(table, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(points.values())
    records = Records(folder)
    if (folder / "study.json").exists():
        if packed.read_text(folder / "points.csv") != table.getvalue():
            raise WrongUse(f"{folder}: the study there has other points; "
                           "resume with the options that began it")
        packed.unpack_folder(folder)
        return records
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "points.csv").write_text(table.getvalue(), encoding="utf-8")
        header = ",".join(MEASUREMENT_COLUMNS) + "\n"
        (folder / "measurements.csv").write_text(header, encoding="utf-8")
        records.write(page)
    except OSError as error:
        raise WrongUse(f"{folder} cannot be written ({error.strerror}): "
                       "name another folder with --out") from None
    return records


def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge the parts of a study into one folder. Raises BadRecords if they do not match.

    The page is the first part's; it names them all.
    """
    study_reader.read(folders)
    pages = [Records(folder).page() for folder in folders]
    ends = [page["finished"] for page in pages]
    parts = [{key: page[key] for key in ("name", "started", "finished", "source_hash")}
             for page in pages]
    out.mkdir(parents=True, exist_ok=True)
    for name in ("points.csv", "measurements.csv"):
        texts = [packed.read_text(folder / name).splitlines(keepends=True) for folder in folders]
        lines = [texts[0][0], *(line for text in texts for line in text[1:])]
        (out / name).write_text("".join(lines), encoding="utf-8")
    Records(out).write({**pages[0], "name": out.name, "parts": parts,
                        "started": min(page["started"] for page in pages),
                        "finished": None if None in ends else max(ends)})
