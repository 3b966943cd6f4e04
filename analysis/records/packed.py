"""Large tables are kept gzipped: `measurements.csv.gz` stands in the place of a `measurements.csv` of many megabytes.

Whoever reads names the plain file and gets what there is of it; whoever goes on appending to it unpacks it first.
"""

import gzip
from pathlib import Path

LARGE_BYTES = 2**21
SUFFIX = ".gz"


def pack(file: Path) -> Path:
    """Gzip `file` where it is large, and return the path of what stands there now."""
    packed = _packed(file)
    if file.stat().st_size < LARGE_BYTES:
        packed.unlink(missing_ok=True)
        return file
    packed.write_bytes(gzip.compress(file.read_bytes(), mtime=0))  # without the time: equal tables are equal files
    file.unlink()
    return packed


def unpack(file: Path) -> None:
    """Put the plain `file` in the place of a gzipped one."""
    if not file.exists() and _packed(file).exists():
        file.write_text(read_text(file), encoding="utf-8")
        _packed(file).unlink()


def find(file: Path) -> Path:
    """The path under which the plain `file` can be found: its own, or the gzipped one's."""
    return file if file.exists() or not _packed(file).exists() else _packed(file)


def read_text(file: Path) -> str:
    """The text of the plain `file`, gzipped or not. Raises OSError where there is neither."""
    found = find(file)
    return gzip.decompress(found.read_bytes()).decode("utf-8") if found.suffix == SUFFIX else found.read_text(encoding="utf-8")


def _packed(file: Path) -> Path:
    return file.with_name(file.name + SUFFIX)
