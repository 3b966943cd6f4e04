"""Writes a study's folder: study.json, points.csv and measurements.csv, each row on disk as soon as its point is done.

docs/reference/records.md says what they hold, `analysis.records.study_reader` reads them.
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
    """The open folder of a study: rows are on disk as soon as their point is done."""

    def __init__(self, folder: Path):
        self.folder = folder

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.folder / "measurements.csv").open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, MEASUREMENT_COLUMNS, restval="", lineterminator="\n")
            writer.writerows(rows)

    def introduce(self, bench: str, hello: Mapping[str, Any]) -> None:
        """Keep what a worker says of itself: its framework's release, its device, its libraries."""
        page = self.page()
        self.update(workers={**page.get("workers", {}), bench: {key: value for key, value in hello.items() if key != "pid"}})

    def page(self) -> dict[str, Any]:
        page: dict[str, Any] = json.loads((self.folder / "study.json").read_text(encoding="utf-8"))
        return page

    def update(self, **fields: Any) -> None:
        (self.folder / "study.json").write_text(json.dumps({**self.page(), **fields}, indent=1), encoding="utf-8")


def open_records(folder: Path, page: Mapping[str, Any], points: Mapping[str, Mapping[str, Any]]) -> Records:
    """Begin a study in `folder`, or go on with the one it holds; raises WrongUse where that has other points."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(dict.fromkeys(key for point in points.values() for key in point)), restval="",
                            lineterminator="\n")
    writer.writeheader()
    writer.writerows(points.values())
    text = table.getvalue()
    if (folder / "study.json").exists():
        if (folder / "points.csv").read_text(encoding="utf-8") != text:
            raise WrongUse(f"{folder}: these words mean other points than the study there has; resume with the words that began it")
        packed.unpack(folder / "measurements.csv")
        return Records(folder)
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "points.csv").write_text(text, encoding="utf-8")
        (folder / "measurements.csv").write_text(",".join(MEASUREMENT_COLUMNS) + "\n", encoding="utf-8")
        (folder / "study.json").write_text(json.dumps(page, indent=1), encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"{folder} cannot be written ({error.strerror}): name another folder with --out") from None
    return Records(folder)


def merge(folders: Sequence[Path], out: Path) -> None:
    """Put the parts of a study into one folder; its first page is the first part's and names them all. Raises WrongUse."""
    study_reader.read(folders)  # refuses what does not belong together
    pages = [Records(folder).page() for folder in folders]
    first = {**pages[0], "name": out.name, "started": min(page["started"] for page in pages),
             "finished": None if None in [page["finished"] for page in pages] else max(page["finished"] for page in pages),
             "parts": [{key: page[key] for key in ("name", "started", "finished", "source_hash")} for page in pages]}
    out.mkdir(parents=True, exist_ok=True)
    for name in ("points.csv", "measurements.csv"):
        texts = [packed.read_text(folder / name).splitlines(keepends=True) for folder in folders]
        (out / name).write_text("".join([texts[0][0], *(line for text in texts for line in text[1:])]), encoding="utf-8")
    (out / "study.json").write_text(json.dumps(first, indent=1), encoding="utf-8")
