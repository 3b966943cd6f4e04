"""The files that workers are fed from: weights a network, batches a (network, batch, data), written once a campaign.

They lie in a temporary folder of the campaign and are the same for every framework, which is what makes losses comparable.
"""

import threading
from pathlib import Path

import networks
from harness import arrays, data_sets

KEPT_BATCHES = 4  # files


class Inputs:
    """Writes each file when it is first asked for; keeps the newest batches only, for they are large."""

    def __init__(self, folder: Path, seed: int, keep: int = KEPT_BATCHES):
        self.folder = folder
        self.seed = seed
        self.keep = keep
        self.lock = threading.Lock()  # processes may get ready several at a time

    def weights(self, network: networks.Network) -> Path:
        path = self.folder / f"weights-{network.name}.npz"
        with self.lock:
            if not path.exists():
                arrays.save_weights(path, arrays.draw_weights(network, self.seed))
        return path

    def batches(self, network: networks.Network, batch: int, data: str) -> Path:
        """Batches of a real set under its name; of the seeded teacher under `device` and `host`."""
        source = "teacher" if data in ("device", "host") else data
        with self.lock:
            return self._batches(network, batch, source)

    def _batches(self, network: networks.Network, batch: int, source: str) -> Path:
        path = self.folder / f"batches-{network.name}-{batch}-{source}.npz"
        if path.exists():
            path.touch()
            return path
        for old in sorted(self.folder.glob("batches-*.npz"), key=lambda file: file.stat().st_mtime)[: -self.keep + 1 or None]:
            old.unlink()
        count = arrays.ring_length(network, batch)
        if source == "teacher":
            made = arrays.synthetic_batches(network, batch, count, self.seed)
        else:
            made = data_sets.batches(source, network, batch, count, self.seed)
        arrays.save_batches(path, *made)
        return path
