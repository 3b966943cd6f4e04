"""The files of weights and batches that every framework is given, written once a campaign.

All frameworks read the same files, which is what makes their losses comparable.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

import networks
import runners.arrays
from harness.data import arrays, data_sets, image_files
from harness.data.divided import Divided
from harness.data.image_files import ImageFiles

# How many files of batches are kept.
KEPT_BATCHES = 4


class Inputs:
    """Writes each file when it is first asked for, and keeps the newest files of batches.

    `sources` says what the plan read each real set from.
    """

    def __init__(self, folder: Path, seed: int, keep: int = KEPT_BATCHES,
                 sources: Mapping[str, str] | None = None):
        self.folder = folder
        self.sources = sources or {}
        self.seed = seed
        self.keep = keep
        # Several processes may get ready at a time: one lock a file, one for what is kept.
        self.writing: dict[Path, threading.Lock] = {}
        self.images: dict[Path, ImageFiles] = {}
        self.choosing = threading.Lock()

    def weights(self, network: networks.Network, seed: int | None = None) -> Path:
        """Return a file of weights of the suite's seed, or of another."""
        seed = self.seed if seed is None else seed
        own = f"-{seed}" if seed != self.seed else ""
        path = self.folder / f"weights-{network.name}{own}.npz"
        with self._writing(path):
            if not path.exists():
                arrays.save_weights(path, arrays.draw_weights(network, seed))
        return path

    def batches(self, network: networks.Network, batch: int, data: str) -> Path:
        """Return a file of batches: of a real set by its name, else of the seeded teacher."""
        source = "teacher" if data in ("device", "host", "files") else data
        path = self.folder / f"batches-{network.name}-{batch}-{source}.npz"
        with self._writing(path):
            if not self._found(path):
                drawn = self._draw(network, batch, source)
                self._make_room()
                arrays.save_batches(path, *drawn)
        return path

    def files(self, network: networks.Network, batch: int) -> ImageFiles:
        """Return the image files of a network, and what the driver sees in them."""
        path = self.folder / f"files-{network.name}-{batch}"
        with self._writing(path):
            if path not in self.images:
                self.images[path] = image_files.write(path, network, batch, self.seed)
        return self.images[path]

    def tests(self, parts: Divided) -> Path:
        """Return the file of a set's test part."""
        path = self.folder / f"test-{parts.network.name}-{parts.name}.npz"
        with self._writing(path):
            if not path.exists():
                runners.arrays.save(path, {"inputs": parts.test_part[0]})
        return path

    def _writing(self, path: Path) -> threading.Lock:
        return self.writing.setdefault(path, threading.Lock())

    def _found(self, path: Path) -> bool:
        """Return whether the file is there, and let it count as new."""
        with self.choosing:
            if found := path.exists():
                path.touch()
            return found

    def _make_room(self) -> None:
        with self.choosing:
            kept = sorted(self.folder.glob("batches-*.npz"), key=lambda file: file.stat().st_mtime)
            for old in kept[: -self.keep + 1 or None]:
                old.unlink()

    def _draw(self, network: networks.Network, batch: int, source: str) -> arrays.Arrays:
        count = arrays.ring_length(network, batch)
        if source == "teacher":
            return arrays.synthetic_batches(network, batch, count, self.seed)
        if source in self.sources:
            data_sets.refuse_changed(source, self.sources[source])
        return data_sets.batches(source, network, batch, count, self.seed)
