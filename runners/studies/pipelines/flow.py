"""One loader before one engine: each stage alone, all in turn, and all at once.

`load` is the loader's three stages together. `overlapped` runs them in a thread a stream while the
engine answers earlier batches, as a server does. All streams read the same file.
"""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

STAGES = ("decode", "resize", "normalise", "load", "infer", "in_turn", "overlapped")
# Batches that wait for the engine, for each stream.
AHEAD = 2


class Loader:
    """What a loader offers: three steps from files to batches of an engine.

    A batch is whatever the library likes. `source` has `files`, `size` (height, width), `filter`,
    `batch`, `mean`, `deviation` and `threads`.
    """

    def __init__(self, source):
        """Raise `Unsupported` where the library is missing, in its own words."""
        self.source = source

    def decode(self):
        """Yield all frames in order, in batches."""
        raise NotImplementedError

    def resize(self, frames):
        raise NotImplementedError

    def normalise(self, frames):
        """Return a batch as the engine takes it."""
        raise NotImplementedError

    def pixels(self, frames):
        """Return decoded or resized frames as NumPy (B, H, W, 3)."""
        return np.stack(frames)

    def floats(self, batch):
        """Return a normalised batch as NumPy (B, 3, H, W)."""
        return np.asarray(batch)


class Flow:
    """The stages of a loader and an engine; making one runs the loader once.

    `infer` answers a batch and returns a function that copies its outputs as NumPy. `inputs` are
    the batches of the reference, with which `infer` is timed alone.
    """

    def __init__(self, loader, infer, inputs, streams):
        self.loader, self.infer, self.inputs, self.streams = loader, infer, inputs, streams
        self.pool = ThreadPoolExecutor(streams) if streams > 1 else None
        self.decoded = list(loader.decode())
        self.resized = [loader.resize(frames) for frames in self.decoded]
        self.normalised = [loader.normalise(frames) for frames in self.resized]

    def decode(self):
        self._in_each_stream(lambda stream: exhaust(self.loader.decode()))

    def resize(self):
        self._in_each_stream(lambda stream: exhaust(map(self.loader.resize, self.decoded)))

    def normalise(self):
        self._in_each_stream(lambda stream: exhaust(map(self.loader.normalise, self.resized)))

    def load(self):
        self._in_each_stream(lambda stream: exhaust(self._prepared()))

    def infer_alone(self, keep=None):
        for stream in range(self.streams):
            self._answer(stream, self.inputs, keep)

    def in_turn(self, keep=None):
        for stream in range(self.streams):
            self._answer(stream, self._prepared(), keep)

    def overlapped(self, keep=None):
        queued = queue.Queue(AHEAD * self.streams)
        for stream in range(self.streams):
            threading.Thread(target=self._produce, args=(stream, queued), daemon=True).start()
        unfinished = self.streams
        while unfinished:
            stream, batch = queued.get()
            if isinstance(batch, Exception):
                raise batch
            if batch is None:
                unfinished -= 1
            else:
                self._answer(stream, [batch], keep)

    def answers(self, run):
        """Return the outputs (N, K) of each stream, of a run of some stages."""
        kept = {}
        run(lambda stream, outputs: kept.setdefault(stream, []).append(outputs()))
        return [np.concatenate(kept[stream]) for stream in sorted(kept)]

    def _prepared(self):
        for frames in self.loader.decode():
            yield self.loader.normalise(self.loader.resize(frames))

    def _produce(self, stream, queued):
        try:
            for batch in self._prepared():
                queued.put((stream, batch))
            queued.put((stream, None))
        except Exception as failure:
            queued.put((stream, failure))

    def _answer(self, stream, batches, keep):
        for batch in batches:
            outputs = self.infer(batch)
            if keep:
                keep(stream, outputs)

    def _in_each_stream(self, work):
        if self.pool:
            exhaust(self.pool.map(work, range(self.streams)))
        else:
            work(0)


def exhaust(batches):
    """Take all, keep none."""
    for _ in batches:
        pass
