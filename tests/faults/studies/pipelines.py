"""Loaders before an engine of NumPy that go wrong in one way each; `pillow` and `pyav` do not."""

import itertools

import numpy as np

from runners.studies.pipelines import bench
from runners.studies.pipelines.flow import Flow
from runners.studies.pipelines.loaders import Pillow, PyAv, library
from tests.faults.engines import Good


class Swapped(Pillow):
    def decode(self):
        for images in super().decode():
            yield [self.image.fromarray(np.asarray(image)[..., ::-1]) for image in images]


class Dropped(PyAv):
    """Loses the third frame and shows the last one twice, so that the count is right."""

    def decode(self):
        images = list(itertools.chain(*super().decode()))
        images = [*images[:2], *images[3:], images[-1]]
        for start in range(0, len(images), self.source.batch):
            yield images[start:start + self.source.batch]


class Short(PyAv):
    """Ends a batch early."""

    def decode(self):
        return list(super().decode())[:-1]


class Exchanged(PyAv):
    """The first two batches change places."""

    def decode(self):
        first, second, *others = super().decode()
        return [second, first, *others]


class Undeclared(Pillow):
    def resize(self, frames):
        height, width = self.source.size
        return [image.resize((width, height), self.image.Resampling.BOX) for image in frames]


class Twice(Pillow):
    def normalise(self, frames):
        mean, deviation = (np.asarray(values, np.float32)[:, None, None]
                           for values in (self.source.mean, self.source.deviation))
        return (super().normalise(frames) / 255 - mean) / deviation


class Absent(Pillow):
    def __init__(self, source):
        library("no_such_decoder")


class Stale(Flow):
    """Overlapped, it answers the batch before."""

    def overlapped(self, keep=None):
        batches = list(self._prepared())
        for batch in [batches[-1], *batches[:-1]]:
            self._answer(0, [batch], keep)


class StalePillow(Pillow):
    FLOW = Stale


class Bench(bench.PipelineBench):
    ENGINE = Good
    LOADERS = {"pillow": Pillow, "pyav": PyAv, "swapped": Swapped, "dropped": Dropped, "short": Short,
               "exchanged": Exchanged, "undeclared": Undeclared, "twice": Twice, "absent": Absent, "stale": StalePillow}

    def flow(self, loader, *rest):
        return getattr(loader, "FLOW", Flow)(loader, *rest)
