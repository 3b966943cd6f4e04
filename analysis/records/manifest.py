"""Hashes of a campaign's files, and of the source that measured it.

`SHA256SUMS` lists every file of the folder in the form that `sha256sum -c` reads. It shows
accidents: a lost file, a cut line, a changed digit. Whoever edits on purpose can write it again, so
the commit that publishes a campaign is the outer seal.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

MANIFEST = "SHA256SUMS"
SIGNATURE = f"{MANIFEST}.sig"
# Names the driver that measures into a folder; a killed one leaves it.
LOCK = ".lock"
PAGES = ("campaign.json", "study.json")
# What reports write, and the caveats that people write: the rest are raw records.
OF_REPORTS = ("report.md", "report.html", "tables", "plots", "trials.csv", "caveats.csv")
CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("configs", "networks", "runners", "harness", "analysis")
SOURCE_KINDS = (".py", ".yaml", ".j2")


def write_manifest(folder: str | Path) -> Path:
    """Write the hash of every file in `folder`, logs too, into its SHA256SUMS; return its path."""
    return _write(Path(folder), {})


def renew_manifest(folder: str | Path) -> Path:
    """Write SHA256SUMS as `write_manifest` does, but leave the hashes of raw records as they are.

    So a report of damaged records does not hide the damage.
    """
    manifest = Path(folder) / MANIFEST
    text = manifest.read_text(encoding="utf-8", errors="replace") if manifest.is_file() else ""
    listed = (line.partition("  ") for line in text.splitlines())
    return _write(Path(folder), {name: digest for digest, _, name in listed
                                 if name and name.partition("/")[0] not in OF_REPORTS})


def _write(folder: Path, known: Mapping[str, str]) -> Path:
    """Write SHA256SUMS with the hashes that are `known`, also of files that are gone."""
    manifest = folder / MANIFEST
    names = sorted({*_names(folder), *known})
    lines = [f"{known.get(name) or sha256(folder / name)}  {name}\n" for name in names]
    unfinished = manifest.with_name(f".{MANIFEST}.{os.getpid()}")
    unfinished.write_text("".join(lines), encoding="utf-8")
    unfinished.replace(manifest)
    return manifest


def check_manifest(folder: str | Path) -> list[tuple[str, str, str]]:
    """Compare `folder` with its SHA256SUMS; return (file, expected, found) of what differs."""
    manifest = Path(folder) / MANIFEST
    if not manifest.is_file():
        return [(MANIFEST, "a manifest", "none: `dlbench report` writes it")]
    faults, listed = unexpected(Path(folder)), {}
    lines = manifest.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            found = f"line {number}: {line[:80]!r}"
            faults.append((MANIFEST, "a hash, two spaces and a name", found))
        listed[name] = digest
    present = _names(Path(folder))
    for name in sorted(set(listed) - set(present)):
        faults.append((name, f"SHA-256 {listed[name]}", "no such file"))
    for name in present:
        found = sha256(Path(folder) / name)
        if name not in listed:
            faults.append((name, f"to be listed in {MANIFEST}", f"SHA-256 {found}"))
        elif listed[name] != found:
            faults.append((name, f"SHA-256 {listed[name]}", f"SHA-256 {found}"))
    return faults


def source_hash(checkout: Path = CHECKOUT) -> str:
    """Return SHA-256 over the name and content of every .py, .yaml and .j2 file, sorted by name.

    These files decide a measurement. The hash ties a campaign without a commit to a source: check
    a commit out and compare.
    """
    digest = hashlib.sha256()
    for folder in SOURCE_FOLDERS:
        for path in sorted((checkout / folder).rglob("*")):
            if path.suffix in SOURCE_KINDS and path.is_file():
                name = path.relative_to(checkout).as_posix()
                digest.update(f"{name}\0{sha256(path)}\n".encode())
    return digest.hexdigest()


def unexpected(folder: Path) -> list[tuple[str, str, str]]:
    """Return (name, expected, found) of all that no command of dlbench writes into `folder`.

    A link may lead out of the folder, and a hidden file or a manifest within is not listed. Folders
    with records of their own, such as a bisection's, have a manifest of their own.
    """
    faults = []
    for path in sorted(folder.rglob("*")):
        name, found = path.relative_to(folder).as_posix(), ""
        if path.is_symlink():
            found = "a link"
        elif not path.is_file() and not path.is_dir():
            found = "neither a file nor a folder"
        elif path.name.startswith(".") and name != LOCK:
            found = "a hidden file"
        elif path.name == MANIFEST and path.parent != folder and not any(
                (path.parent / page).is_file() for page in PAGES):
            found = "another manifest"
        if found:
            faults.append((name, "nothing of this name, or a regular file", found))
    return faults


def _names(folder: Path) -> list[str]:
    """Return the regular files below `folder` but manifests; unfinished files begin with a dot."""
    paths = (path.relative_to(folder) for path in folder.rglob("*")
             if path.is_file() and not path.is_symlink())
    return sorted(path.as_posix() for path in paths
                  if path.name not in (MANIFEST, SIGNATURE) and not path.name.startswith("."))


def sha256(path: Path) -> str:
    """Return the hash of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
