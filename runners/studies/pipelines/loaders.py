"""Loaders whose frames are NumPy's: Pillow, OpenCV and PyAV. Each reads as its library's examples.

A library is imported as its loader is made, because an environment may lack some.
"""

import importlib

import numpy as np

from runners.protocol import Unsupported
from runners.studies.pipelines.flow import Loader


def library(name):
    """Import a library. Raises `Unsupported` in the words of the import."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise refusal(f"import {name}", error) from error


def refusal(what, error):
    """Return an `Unsupported` of an error's first line and the first library that it misses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lacks = [line for line in lines if "cannot open shared object file" in line]
    said = " ".join(dict.fromkeys([*lines[:1], *lacks[:1]]))
    return Unsupported(f"{what}: {type(error).__name__}: {said[:300]}")


def in_batches(frames, size):
    batch = []
    for frame in frames:
        batch.append(frame)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class NumpyLoader(Loader):
    def normalise(self, frames):
        scores = np.stack(frames).astype(np.float32) / np.float32(255)  # (B, H, W, 3)
        scores -= np.asarray(self.source.mean, np.float32)
        scores /= np.asarray(self.source.deviation, np.float32)
        return np.ascontiguousarray(scores.transpose(0, 3, 1, 2))


class Pillow(NumpyLoader):
    """Pillow decodes JPEG and resizes; its bilinear filter widens as an image shrinks."""

    def __init__(self, source):
        super().__init__(source)
        self.image = library("PIL.Image")

    def decode(self):
        images = (self.image.open(file).convert("RGB") for file in self.source.files)
        return in_batches(images, self.source.batch)

    def resize(self, frames):
        height, width = self.source.size
        return [image.resize((width, height), self.image.Resampling.BILINEAR) for image in frames]

    def pixels(self, frames):
        return np.stack([np.asarray(image) for image in frames])


class PyAv(Pillow):
    """PyAV decodes video with FFmpeg; Pillow resizes."""

    def __init__(self, source):
        super().__init__(source)
        self.av = library("av")

    def decode(self):
        with self.av.open(self.source.files[0]) as container:
            frames = (frame.to_image() for frame in container.decode(video=0))
            yield from in_batches(frames, self.source.batch)


class OpenCv(NumpyLoader):
    """OpenCV decodes both and resizes. Its channels are blue, green, red until they are swapped."""

    def __init__(self, source):
        super().__init__(source)
        self.cv = library("cv2")
        self.cv.setNumThreads(source.threads)
        # Its guide: INTER_AREA to shrink, INTER_LINEAR to enlarge.
        self.filter = {"area": self.cv.INTER_AREA, "bilinear": self.cv.INTER_LINEAR}[source.filter]

    def decode(self):
        source = self.source
        video = source.files[0].endswith(".mp4")
        frames = self._frames() if video else map(self.cv.imread, source.files)
        return in_batches((self.cv.cvtColor(frame, self.cv.COLOR_BGR2RGB) for frame in frames),
                          source.batch)

    def _frames(self):
        capture = self.cv.VideoCapture(self.source.files[0])
        while True:
            found, frame = capture.read()
            if not found:
                capture.release()
                return
            yield frame

    def resize(self, frames):
        height, width = self.source.size
        return [self.cv.resize(frame, (width, height), interpolation=self.filter)
                for frame in frames]


NUMPY = {"pillow": Pillow, "pyav": PyAv, "opencv": OpenCv}
