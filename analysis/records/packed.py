"""Packs finished results for publishing and reads what is packed.

A campaign writes plain files while it runs. `pack_folder` compresses its raw tables and logs and
removes what a report makes again; `unpack_folder` restores the plain files. Readers name the plain
file: `find` and `read_text` fall back to the gzipped one. No times or owners are stored, so equal
contents give equal bytes.
"""

import gzip
import io
import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from analysis.records import manifest
from analysis.records.text import BadRecords

SUFFIX = ".gz"
LARGE_BYTES = 2**21  # a study's report compresses its own tables from this size on
MOST_BYTES = 2**31  # of a table's text; the largest published one has 60 MB
LEAST_BYTES = 2**14  # a smaller raw table stays plain, so that it can be read in a browser
RAW_TABLES = ("windows.csv", "counters.csv", "kernels.csv", "operators.csv", "phases.csv",
              "network.csv", "latencies.csv", "server.csv", "scenarios.csv", "accuracy.csv",
              "answers.csv", "measurements.csv", "points.csv", "links.csv")
LOGS = "logs.tar.gz"
RECORDS = manifest.PAGES
# Names of pages, in Markdown and in HTML.
REPORTS = ("report", "compare", "explain", "track")
# Tables of results that hold campaigns.
OF_SEVERAL = ("compare.csv", "explain.csv", "bisect.csv", "track.csv")


def homes_of(folder: Path) -> list[Path]:
    """List the campaigns and studies of a result: itself, or those at most two folders down.

    A comparison holds two and an explanation more; what lies deeper is somebody else's. A folder
    that is no result of dlbench has none.
    """
    if not any((folder / name).is_file() for name in (*RECORDS, *OF_SEVERAL)):
        return []
    return sorted({file.parent for down in ("", "*/", "*/*/") for name in RECORDS
                   for file in folder.glob(down + name)})


def pack_folder(folder: Path) -> None:
    """Compress the campaigns and studies in `folder` and renew their SHA256SUMS.

    HTML pages and PNG plots of reports go: the Markdown and the SVG plots that it shows stay. Other
    files stay. Raises BadRecords, before anything changes, if a raw record is damaged: the new
    hashes would hide it.
    """
    homes = homes_of(folder)
    for home in homes:
        _refuse_damaged(home)
    for place in {folder, *homes}:
        _remove_pages(place)
    for home in homes:
        for file in [home / name for name in RAW_TABLES if (home / name).is_file()]:
            pack(file, LEAST_BYTES)
        if (home / "logs").is_dir():
            (home / LOGS).write_bytes(_archive(home / "logs"))
            shutil.rmtree(home / "logs")
        manifest.write_manifest(home)


def unpack_folder(folder: Path) -> None:
    """Restore the plain files of a campaign or study, so that it can be appended to.

    SHA256SUMS goes: rows that are added would differ from it, and the end writes it anew.
    """
    (folder / manifest.MANIFEST).unlink(missing_ok=True)
    for name in RAW_TABLES:
        unpack(folder / name)
    if (folder / LOGS).exists():
        with tarfile.open(folder / LOGS) as archive:
            archive.extractall(folder, filter="data")
        (folder / LOGS).unlink()


def pack(file: Path, least: int | None = None) -> Path:
    """Gzip `file` if it has `least` bytes (default: `LARGE_BYTES`); return the file there now."""
    packed = _packed(file)
    if file.stat().st_size < (LARGE_BYTES if least is None else least):
        packed.unlink(missing_ok=True)
        return file
    packed.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    file.unlink()
    return packed


def unpack(file: Path) -> None:
    """Replace a gzipped `file` by the plain one."""
    if not file.exists() and _packed(file).exists():
        file.write_text(read_text(file), encoding="utf-8")
        _packed(file).unlink()


def find(file: Path) -> Path:
    """Return `file`, or its gzipped form if only that exists."""
    return file if os.path.lexists(file) or not _packed(file).exists() else _packed(file)


def read_text(file: Path) -> str:
    """Return the text of `file`, gzipped or not.

    Raises FileNotFoundError if there is neither, and BadRecords if it cannot be read.
    """
    found = find(file)
    try:
        with _open_regular(found) as opened:
            plain = gzip.GzipFile(fileobj=opened) if found.suffix == SUFFIX else opened
            content = plain.read(MOST_BYTES + 1)
    except FileNotFoundError:
        if os.path.islink(found):
            raise BadRecords(f"{found}: a link to nothing; restore it from a copy") from None
        raise
    except NotADirectoryError:
        raise BadRecords(f"{found.parent}: is a file; name the folder of the records") from None
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise BadRecords(f"{found}: cannot be read ({why}); restore it from a copy") from None
    if len(content) > MOST_BYTES:
        raise BadRecords(f"{found}: holds more than {MOST_BYTES:,} bytes; restore it from a copy")
    try:
        # A spreadsheet begins what it saves with a byte order mark.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadRecords(f"{found}: line {line}: not UTF-8; restore it from a copy") from None


def _open_regular(file: Path) -> BinaryIO:
    """Open a regular file; a FIFO would keep its reader waiting. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError("it is not a regular file")


def text_table(file: Path) -> pd.DataFrame:
    """Read a CSV, gzipped or not, as text; an empty table if there is none."""
    found = find(file)
    if not found.exists():
        return pd.DataFrame()
    return pd.read_csv(found, dtype=str, keep_default_na=False)


def _remove_pages(place: Path) -> None:
    """Remove what `dlbench report` makes again, where the same stands in Markdown or SVG."""
    reports = [place / f"{name}.md" for name in REPORTS if (place / f"{name}.md").is_file()]
    for report in reports:
        report.with_suffix(".html").unlink(missing_ok=True)
    for plot in (place / "plots").glob("*.svg") if reports else ():
        plot.with_suffix(".png").unlink(missing_ok=True)


def _refuse_damaged(home: Path) -> None:
    if (home / "logs").is_dir() and (home / LOGS).exists():
        raise BadRecords(f"{home}: holds logs/ and {LOGS}, and packing would replace the archive; "
                         "move one of them away")
    faults = manifest.check_manifest(home) if (home / manifest.MANIFEST).is_file() else []
    for name, expected, found in faults:
        raw = (name.removesuffix(SUFFIX) in (*RECORDS, "processes.csv", *RAW_TABLES)
               or name.startswith("logs/") or name == LOGS)
        if raw and expected.startswith("SHA-256"):
            raise BadRecords(f"{home / name}: its hash in {manifest.MANIFEST} does not hold "
                             f"({found}); restore it from a copy before it is packed")


def _packed(file: Path) -> Path:
    return file.with_name(file.name + SUFFIX)


def _archive(folder: Path) -> bytes:
    """Return the files of `folder` as a gzipped tar archive without times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = file.read_bytes()
            entry = tarfile.TarInfo(file.relative_to(folder.parent).as_posix())
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)
