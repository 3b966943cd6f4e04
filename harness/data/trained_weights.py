"""Files of trained weights that a suite names for inference.

Names, layouts and shapes are those of the network's description, as `until.keep_weights` writes
them. A file is checked whole before anything runs.
"""

import hashlib
import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

import networks
from harness.errors import WrongUse
from harness.validation import short
from networks import Network

# Twice the bytes of float32, so that a file of float64 is told that.
MOST_BYTES, HEADER_BYTES = 8, 4096
UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


def read(file: Path, network: Network) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays of a file by name, and the file's SHA-256.

    Raises WrongUse that says what is wrong with the file, and the remedy.
    """
    if networks.short_of(network) is not network:
        raise WrongUse(f"{network.name}: its proof takes a shorter network with drawn weights; "
                       "leave its weights out")
    shapes = network.state_shapes
    most = MOST_BYTES * sum(map(_size, shapes.values())) + HEADER_BYTES * (1 + len(shapes))
    if not file.is_file():
        raise WrongUse(f"{short(file)}: no such file; name one that until.keep_weights wrote")
    if file.stat().st_size > most:
        raise WrongUse(f"{short(file)}: has {file.stat().st_size:,} bytes, the weights of "
                       f"{network.name} take less; name a file of its weights")
    content = file.read_bytes()
    try:
        found = _arrays(content, most)
    except UNREADABLE as error:
        raise WrongUse(f"{short(file)}: is no .npz of plain arrays ({error}); write it with "
                       "numpy.savez") from None
    if fault := fault_of(found, network):
        raise WrongUse(f"{short(file)}: {fault}")
    return found, hashlib.sha256(content).hexdigest()


def fault_of(found: dict[str, np.ndarray], network: Network) -> str:
    """Say what is wrong with arrays by name, and the remedy; "" if they are a network's state."""
    shapes = network.state_shapes
    if missing := sorted(set(shapes) - set(found)):
        return (f"holds no array {missing[0]}, one of {len(missing)} that {network.name} needs; "
                "`dlbench networks` lists its layers")
    if unknown := sorted(set(found) - set(shapes)):
        return f"holds an array {unknown[0]}, which {network.name} lacks; leave it out"
    for name, array in found.items():
        if array.shape != shapes[name]:
            return (f"{name} has the shape {array.shape}, {network.name} needs {shapes[name]}; "
                    "transpose it, or name the file of this network")
        if array.dtype != np.float32:
            return f"{name} is {array.dtype}; save it as float32"
        if not np.isfinite(array).all():
            return f"{name} has numbers that are not finite; name weights of a sound training"
        if name.endswith(".variance") and (array < 0).any():
            return f"{name} has negative numbers; a variance has none"
    return ""


def _arrays(content: bytes, most: int) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > most:
        raise ValueError(f"unpacks to {size:,} bytes, at most {most:,} are read")
    with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
        return {name: loaded[name] for name in loaded.files}


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))
