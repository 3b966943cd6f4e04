"""Reads a .tar.xz of labelled JPEG images, `PART/CLASS/NUMBER.jpg`, with Pillow.

Pillow is the optional extra `images`: only this kind of set needs it.
"""

import io
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from harness.data.arrays import Arrays
from harness.errors import WrongUse, install
from harness.validation import short


def encoded(path: Path, part: str) -> list[bytes]:
    """Return the JPEG files of a part, in the order of `read`."""
    named = sorted((name, content) for inside, name, content in _members(path) if inside == part)
    return [content for _, content in named]


def read(path: Path, part: str) -> Arrays:
    """Return the uint8 images [N, 3, H, W] of a part in the order of their paths, and labels.

    Classes are numbered by name. Raises WrongUse.
    """
    return _decoded(path, path.stat().st_mtime_ns)[part]


@lru_cache(maxsize=1)
def _decoded(path: Path, changed: int) -> dict[str, Arrays]:
    """Decode all parts once a process: 60,000 small images take seconds."""
    try:
        from PIL import Image
    except ImportError:
        raise WrongUse(f"{short(path)}: its JPEG images are decoded by Pillow, which is not "
                       f"installed: {install('images')}") from None
    found: dict[str, dict[str, np.ndarray]] = {}
    for part, name, content in _members(path):
        image = Image.open(io.BytesIO(content)).convert("RGB")
        found.setdefault(part, {})[name] = np.asarray(image).transpose(2, 0, 1)
    return {part: _in_order(images) for part, images in found.items()}


def _members(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the part, the name within it and the bytes of each image."""
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith(".jpg") else None
            if stream:
                place = Path(member.name)
                yield place.parts[-3], "/".join(place.parts[-2:]), stream.read()


def _in_order(images: dict[str, np.ndarray]) -> Arrays:
    names = sorted(images)
    classes = sorted({name.partition("/")[0] for name in names})
    labels = [classes.index(name.partition("/")[0]) for name in names]
    return np.stack([images[name] for name in names]), np.array(labels)
