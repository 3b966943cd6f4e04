"""Reads, writes, copies and transposes arrays. Python 3.6 syntax, because old frameworks load this.

np.load checks each byte and copies in small pieces, between which threads pass Python's lock; it
took 0.8 s for AlexNet's 244 MB where a map takes nothing. A copy into new memory waits for pages
more than for bytes, and several threads get these at a time.
"""

import functools
import io
import os
import struct
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

# Offset of the two lengths in a zip member's local header (APPNOTE 4.3.7).
LOCAL_HEADER_LENGTHS = 26
# Bytes of a local header and the extra fields for long files and for padding, before the padding.
MEMBER_HEADER = 30 + 20 + 4
# The number of an extra field that holds padding, as Android's zipalign writes it.
PADDING = 0xD935
# Bytes of a cache line. NumPy's own header takes a multiple of it.
LINE = 64
STRIP = 64
# How many numbers one thread takes at a time.
SHARE = 2**18
MOST_THREADS = 8


def mapped(path, mode="r"):
    """Map the arrays of an uncompressed .npz by name. Raises ValueError if compressed.

    With the mode "c" they can be written to, which changes no file.
    """
    with open(str(path), "rb") as file:
        return mapped_from(file, mode)


def mapped_from(file, mode="r"):
    """Map the arrays of an open .npz, as `mapped` does. Reads no pickled objects.

    One map a file, because each map holds a file descriptor.
    """
    arrays = {}
    whole = np.memmap(file, np.uint8, mode)
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{file.name}: {member.filename} is compressed")
            file.seek(member.header_offset + LOCAL_HEADER_LENGTHS)
            file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
            version = np.lib.format.read_magic(file)
            length, = struct.unpack(*(("<H", file.read(2)) if version == (1, 0)
                                      else ("<I", file.read(4))))
            shape, columns_first, dtype = described(version, file.read(length))
            if dtype.hasobject:
                # Its bytes would be taken for addresses.
                raise ValueError(f"{file.name}: {member.filename} holds objects")
            name = member.filename[:-len(".npy")]
            arrays[name] = np.ndarray(shape, dtype, whole, file.tell(),
                                      order="F" if columns_first else "C")
    return arrays


@functools.lru_cache(maxsize=4096)
def described(version, header):
    """Return the shape, order and type that an array's header states.

    The results are kept, because NumPy compiles each header as Python. That took a third of the
    proof of ResNet-50, whose many arrays have few shapes.
    """
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(
            io.BytesIO(struct.pack("<H", len(header)) + header))
    return np.lib.format.read_array_header_2_0(
        io.BytesIO(struct.pack("<I", len(header)) + header))


def batches(arrays):
    """Return the inputs and targets of a ring.

    Inputs that lie as `inputs_channels_last` (N, B, H, W, C) are seen as (N, B, C, H, W).
    """
    if "inputs" in arrays:
        return arrays["inputs"], arrays["targets"]
    return np.moveaxis(arrays["inputs_channels_last"], -1, 2), arrays["targets"]


class Archive(zipfile.ZipFile):
    """An .npz that is written array by array, so that none has to be kept; a context manager.

    Arrays begin on cache lines: NumPy works through buffers where numbers lie across words.
    """

    def __init__(self, path):
        super().__init__(str(path), "w", zipfile.ZIP_STORED, True)

    def add(self, name, array):
        """Write an array. np.savez would copy it twice."""
        array = np.asarray(array, order="C")
        member = zipfile.ZipInfo(name + ".npy")
        before = self.start_dir + MEMBER_HEADER + len(member.filename.encode())
        padding = -before % LINE
        member.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
        with self.open(member, "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(
                file, np.lib.format.header_data_from_array_1_0(array))
            file.write(memoryview(array).cast("B") if array.size else b"")


def save(path, arrays):
    """Write arrays by name as an uncompressed .npz: noise does not compress."""
    with Archive(path) as archive:
        for name, array in arrays.items():
            archive.add(name, array)


def transposed(array, axes):
    """Return a new float32 array with these axes, in their order in memory."""
    return all_transposed({"": (array, axes)})[""]


def all_transposed(arrays):
    """Transpose arrays by name, each given with its axes; several threads share the work.

    It works by strips of the first axis, so that source and target stay in a cache: a transpose of
    151 MB took one thread 0.15 s, NumPy's own 0.53 s.
    """
    # If the last axis comes first: transpose a matrix, then each of its rows.
    twice = {name: array.shape for name, (array, axes) in arrays.items()
             if array.ndim > 2 and axes[0] == array.ndim - 1}
    if twice:
        rows = all_transposed({name: (arrays[name][0].reshape(-1, shape[-1]), (1, 0))
                               for name, shape in twice.items()})
        arrays = dict(arrays, **{
            name: (rows[name].reshape(shape[-1:] + shape[:-1]),
                   [0] + [axis + 1 for axis in arrays[name][1][1:]])
            for name, shape in twice.items()})
    turned = {name: np.empty([array.shape[axis] for axis in axes], np.float32)
              for name, (array, axes) in arrays.items()}

    def turn(job):
        name, share = job
        array, axes = arrays[name]
        place = (slice(None),) * list(axes).index(0)
        for first in range(share.start, min(share.stop, len(array)), STRIP):
            strip = slice(first, first + STRIP)
            turned[name][place + (strip,)] = array[strip].transpose(axes)

    in_threads(turn, [(name, share) for name, (array, _) in arrays.items()
                      for share in shares(array, STRIP)])
    return turned


def copied(arrays):
    """Return copies of arrays by name; several threads share the work."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    copies = {name: np.empty_like(array) for name, array in arrays.items()}

    def copy(job):
        name, rows = job
        copies[name][rows] = arrays[name][rows]

    in_threads(copy, [(name, rows) for name, array in arrays.items() for rows in shares(array)])
    return copies


def shares(array, least=1):
    """Divide an array along its first axis into what one thread takes at a time.

    A share has a multiple of `least` rows.
    """
    if not array.ndim:
        return [Ellipsis]
    rows = least * max(1, SHARE * len(array) // max(1, array.size) // least)
    return [slice(first, first + rows) for first in range(0, len(array), rows)]


def in_threads(work, jobs):
    """Return what `work` makes of each job, in order. NumPy lets other threads run meanwhile."""
    count = min(threads(), len(jobs))
    if count < 2:
        return [work(job) for job in jobs]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, jobs))


def threads():
    """Return how many threads may compute: the processors of this process, to a limit."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_THREADS, allowed or 1)


def error_along(found, exact):
    """Return the relative error of outputs along the differences between the exact outputs.

    Outputs are regressed on exact outputs, both less their mean; the error is the coefficient minus
    one. Rounding errors of many outputs cancel in it. Outputs that do not depend on the input give
    -1.
    """
    differences = exact.reshape(len(exact), -1)
    differences = differences - differences.mean(axis=0)
    moved = found.reshape(len(found), -1).astype(np.float64)
    return float((moved * differences).sum() / np.square(differences).sum() - 1)
