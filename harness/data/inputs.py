"""The files that workers are fed from: weights a network, batches a (network, batch, data), written once a campaign.

They lie in a temporary folder of the campaign and are the same for every framework, which is what makes losses comparable.
"""

import threading
from pathlib import Path

import networks
from harness.data import arrays, data_sets

KEPT_BATCHES = 4  # files


class Inputs:
    """Writes each file when it is first asked for, different ones side by side; of batches, which are large, keeps the newest."""

    def __init__(self, folder: Path, seed: int, keep: int = KEPT_BATCHES):
        self.folder = folder
        self.seed = seed
        self.keep = keep
        self.writing: dict[Path, threading.Lock] = {}  # one a file: processes may get ready several at a time
        self.choosing = threading.Lock()  # of what is kept

    def weights(self, network: networks.Network) -> Path:
        path = self.folder / f"weights-{network.name}.npz"
        with self._writing(path):
            if not path.exists():
                arrays.save_weights(path, arrays.draw_weights(network, self.seed))
        return path

    def batches(self, network: networks.Network, batch: int, data: str) -> Path:
        """Batches of a real set under its name; of the seeded teacher under `device` and `host`."""
        source = "teacher" if data in ("device", "host") else data
        path = self.folder / f"batches-{network.name}-{batch}-{source}.npz"
        with self._writing(path):
            if not self._found(path):
                drawn = self._draw(network, batch, source)
                self._make_room()
                arrays.save_batches(path, *drawn)
        return path

    def _writing(self, path: Path) -> threading.Lock:
        return self.writing.setdefault(path, threading.Lock())

    def _found(self, path: Path) -> bool:
        """Say whether the file is there, and let it count as new."""
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
        return data_sets.batches(source, network, batch, count, self.seed)
