"""The mini-batches of each epoch as files, the next one written while the present one trains.

On a GPU the driver has cores to spare. On a CPU that trains it has none, so there each epoch is
prepared when it is asked for.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import runners.arrays
from harness.data.divided import Divided


@dataclass
class Epochs:
    """Writes the epochs of one seed into `folder`."""

    divided: Divided
    batch: int
    seed: int
    augment: bool
    folder: Path
    writer: ThreadPoolExecutor | None  # None: an epoch is written when it is asked for
    coming: dict[int, "Future[Path]"] = field(default_factory=dict)

    def file(self, number: int) -> Path:
        """Return the file of an epoch; the one before the last may be gone."""
        if not self.writer:
            return self._write(number)
        ready = self.coming.pop(number, None) or self.writer.submit(self._write, number)
        path = ready.result()
        self.coming[number + 1] = self.writer.submit(self._write, number + 1)
        return path

    def last(self, number: int) -> Path:
        """Return the file with the last mini-batch of an epoch alone. It stays."""
        return self.folder / f"last-{number}.npz"

    def _write(self, number: int) -> Path:
        drawn = self.divided.epoch(self.batch, self.seed, number, self.augment)
        path = self.folder / f"epoch-{number % 2}.npz"
        runners.arrays.save(path, drawn)
        runners.arrays.save(self.last(number), {name: array[-1:] for name, array in drawn.items()})
        return path


@contextmanager
def epochs(divided: Divided, batch: int, seed: int, augment: bool, folder: Path,
           prefetch: bool) -> Iterator[Epochs]:
    """Lend the epochs of a seed; with `prefetch` a thread writes the next one."""
    writer = ThreadPoolExecutor(1) if prefetch else None
    try:
        yield Epochs(divided, batch, seed, augment, folder, writer)
    finally:
        if writer:
            writer.shutdown(cancel_futures=True)
