"""A small archive of JPEG images in the place of cifar10-jpeg."""

import hashlib
import io
import tarfile

import pytest
import yaml
from PIL import Image

from harness.data import data_sets

CLASSES = ("airplane", "bird", "cat")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Hold an archive of plain images, each class as bright as its number, as cifar10-jpeg."""
    folder = tmp_path / "data" / "cifar10-jpeg"
    folder.mkdir(parents=True)
    path = folder / "images.tar.xz"
    with tarfile.open(path, "w:xz") as file:
        # Not in order: an archive keeps the order in which it was made.
        for part, count in (("test", 2), ("train", 4)):
            for name in reversed(CLASSES):
                for number in range(count):
                    stream = io.BytesIO()
                    grey = 100 * CLASSES.index(name) + number
                    Image.new("RGB", (32, 32), (grey,) * 3).save(stream, "JPEG")
                    member = tarfile.TarInfo(f"set/{part}/{name}/{number:04}.jpg")
                    member.size = stream.tell()
                    stream.seek(0)
                    file.addfile(member, stream)
    entry = {"name": path.name, "url": "https://example.org/images", "by_hand": "nobody publishes this archive",
             "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    sets = {"cifar10-jpeg": {"title": "Pictures", "unit": "images", "stands_for": "cifar10", "parts": [
        {"name": "training", "inside": "train", "files": [entry]}, {"name": "test", "inside": "test", "files": [entry]}]}}
    monkeypatch.setattr(data_sets, "CONFIG", tmp_path / "data.yaml")
    data_sets.CONFIG.write_text(yaml.safe_dump(sets))
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path / "data"))
    return path
