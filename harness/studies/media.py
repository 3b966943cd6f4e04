"""The files of the pipelines study: JPEG images and a clip, and their frames as decoded here.

Pillow and PyAV write and decode them; they are the optional extra `media`. What is drawn depends on
its size and number alone.
"""

import hashlib
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.data import data_sets, jpeg_archive
from harness.errors import WrongUse, install

CIFAR = "cifar10-jpeg"
RATE = 25
QUALITY = 90
# More threads change the bytes. With one thread they differed once in thousands of clips, for no
# reason that was found, so study.json keeps the hash of the file that was measured.
ENCODER = {"preset": "veryfast", "crf": "20", "threads": "1"}


def library(name: str) -> Any:
    """Import Pillow or PyAV. Raises WrongUse with the remedy."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise WrongUse(f"study pipelines needs Pillow and PyAV in dlbench's own environment "
                       f"({error}): {install('media')}") from None


def images_here(wanted: str) -> str:
    """Return the source of JPEG: `auto` is cifar10-jpeg where it is here. Raises WrongUse."""
    present = data_sets.files_of(CIFAR) if wanted in ("auto", CIFAR) else []
    if wanted == CIFAR and not present:
        raise WrongUse(f"--images {CIFAR}: it is not here; set DLBENCH_DATA to the folder that "
                       f"holds {CIFAR}/, or write --images drawn")
    return CIFAR if present else "drawn"


def write(source: str, folder: Path, frames: int, size: tuple[int, int]) -> list[Path]:
    """Write the files of a source of `frames` images of `size` (width, height); return them."""
    folder.mkdir()
    if source == "video":
        return [_encode(folder / "clip.mp4", frames, size)]
    if source == CIFAR:
        [archive] = data_sets.files_of(CIFAR)
        images = jpeg_archive.encoded(archive, "test")
        if frames > len(images):
            raise WrongUse(f"--frames {frames}: {CIFAR} has {len(images)} test images")
        # Spread over all classes.
        contents = [images[number * len(images) // frames] for number in range(frames)]
    else:
        contents = [_jpeg(drawn(number, *size)) for number in range(frames)]
    files = []
    for number, content in enumerate(contents):
        files.append(folder / f"{number:05}.jpg")
        files[-1].write_bytes(content)
    return files


def decoded(files: Sequence[Path]) -> np.ndarray:
    """Return the frames (N, H, W, 3) of a source as Pillow or PyAV decodes it: the reference."""
    if files[0].suffix == ".mp4":
        with library("av").open(str(files[0])) as container:
            return np.stack([frame.to_ndarray(format="rgb24")
                             for frame in container.decode(video=0)])
    image = library("PIL.Image")
    return np.stack([np.asarray(image.open(file).convert("RGB")) for file in files])


def described(files: Sequence[Path]) -> dict[str, Any]:
    """Return what study.json keeps of a source: its files' number, bytes and common hash."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files),
            "sha256": digest.hexdigest()}


def versions() -> dict[str, str]:
    """Return the releases of what made the reference."""
    return {"Pillow": library("PIL").__version__, "PyAV": library("av").__version__}


def drawn(number: int, width: int, height: int) -> np.ndarray:
    """Draw frame `number`: waves that drift and change colour, and a disc that crosses them.

    Consecutive frames differ, so that one that is lost or out of order shows.
    """
    y, x = np.mgrid[:height, :width] / np.array([height, width])[:, None, None]
    time = 0.25 * number
    channels = []
    for channel in range(3):
        across = np.sin(2 * np.pi * (2 * x + (channel + 1) * y) + time * (1 + 0.4 * channel))
        fine = np.sin(2 * np.pi * (9 * x - 7 * y) - 2 * time)
        channels.append(128 + 40 * across + 20 * fine + 50 * np.sin(time + 2.1 * channel))
    centre = 0.5 + 0.35 * np.sin([time, 1.3 * time])
    disc = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < 0.02
    image = np.stack(channels, axis=-1)
    image[disc] = 255 - image[disc]
    found: np.ndarray = np.clip(image.round(), 0, 255).astype(np.uint8)
    return found


def _jpeg(frame: np.ndarray) -> bytes:
    """Encode with halved chroma, as cameras do."""
    buffer = io.BytesIO()
    library("PIL.Image").fromarray(frame).save(buffer, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return buffer.getvalue()


def _encode(file: Path, frames: int, size: tuple[int, int]) -> Path:
    av = library("av")
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options=ENCODER)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(drawn(number, *size), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file
