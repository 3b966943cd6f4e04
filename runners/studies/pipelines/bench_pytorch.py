"""The pipelines study in PyTorch: NumPy's loaders, and those whose frames are tensors.

`torch` resizes and normalises what Pillow or PyAV decoded. torchcodec and PyNvVideoCodec decode
into tensors; neither has run on a GPU here yet.
"""

import subprocess

import numpy as np
import torch
import torch.nn.functional as F

from runners.protocol import Unsupported
from runners.pytorch.inference import PyTorch
from runners.studies.pipelines import bench, loaders
from runners.studies.pipelines.flow import Loader
from runners.studies.pipelines.loaders import library

DECODER = "libnvcuvid.so"


class Torch(Loader):
    """Frames are uint8 tensors (B, 3, H, W); `antialias` widens the bilinear filter."""

    def __init__(self, source):
        super().__init__(source)
        self.mean, self.deviation = (torch.tensor(values).view(3, 1, 1)
                                     for values in (source.mean, source.deviation))
        video = source.files[0].endswith(".mp4")
        self.decoder = (loaders.PyAv if video else loaders.Pillow)(source)

    def decode(self):
        for images in self.decoder.decode():
            frames = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
            yield frames.permute(0, 3, 1, 2)

    def resize(self, frames):
        return F.interpolate(frames, self.source.size, mode="bilinear", antialias=True)

    def normalise(self, frames):
        return (frames.float() / 255 - self.mean) / self.deviation

    def pixels(self, frames):
        return frames.permute(0, 2, 3, 1).cpu().numpy()

    def floats(self, batch):
        return batch.cpu().numpy()


class TorchCodec(Torch):
    """torchcodec decodes with FFmpeg's shared libraries, on a GPU with its decoder."""

    def __init__(self, source):
        super().__init__(source)
        if source.device == "cuda":
            refuse_without_decoder()
        self.codec = library("torchcodec.decoders")
        # Its libraries are loaded when they are first used.
        try:
            self.open()
        except (ImportError, OSError, RuntimeError) as error:
            raise loaders.refusal("torchcodec", error) from error

    def open(self):
        return self.codec.VideoDecoder(self.source.files[0], device=self.source.device)

    def decode(self):
        video = self.open()
        for start in range(0, len(video), self.source.batch):
            yield video[start:start + self.source.batch].cpu()


class PyNvVideoCodec(Torch):
    """PyNvVideoCodec decodes on a GPU's video decoder."""

    def __init__(self, source):
        super().__init__(source)
        refuse_without_decoder()
        self.codec = library("PyNvVideoCodec")

    def decode(self):
        kind = self.codec.OutputColorType.RGBP
        video = self.codec.SimpleDecoder(self.source.files[0], output_color_type=kind)
        frames = (torch.from_dlpack(video[place]).cpu() for place in range(len(video)))
        yield from map(torch.stack, loaders.in_batches(frames, self.source.batch))


def refuse_without_decoder():
    """Raise `Unsupported` unless the driver brings NVIDIA's video decoder."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
    if DECODER not in listed.stdout:
        raise Unsupported(f"`ldconfig -p` names no {DECODER}: the driver here has no video decoder")


class Bench(bench.PipelineBench):
    ENGINE = PyTorch
    LOADERS = {**loaders.NUMPY, "torch": Torch, "torchcodec": TorchCodec,
               "pynvvideocodec": PyNvVideoCodec}

    def __init__(self, task):
        super().__init__(task)
        torch.set_num_threads(task.threads)

    def place(self, array):
        return torch.from_numpy(np.ascontiguousarray(array))

    def _inference(self, batch):
        infer = super()._inference(batch)
        # NumPy's loaders leave arrays.
        return lambda given: infer(given if torch.is_tensor(given) else torch.from_numpy(given))
