"""Which CUDA libraries the process has loaded, asked of the libraries themselves.

Several versions may be installed beside each other; TensorFlow's build information names those that
it was built with.
"""

import contextlib
import ctypes
import re
from pathlib import Path

MAPS = Path("/proc/self/maps")
# Library -> its function int f(libraryPropertyType, int *) for major, minor and patch.
PROPERTIES = {"cublas": "cublasGetProperty", "cudnn": "cudnnGetProperty"}


def loaded():
    """Return the version of each library of PROPERTIES that is loaded, by its name."""
    versions = {}
    text = MAPS.read_text() if MAPS.exists() else ""
    for path, name in sorted(set(re.findall(r"(/\S*/lib(\w+)\.so[.\d]*)$", text, re.MULTILINE))):
        if name in PROPERTIES:
            # A library without the function says nothing.
            with contextlib.suppress(OSError, AttributeError):
                versions[name] = _version(getattr(ctypes.CDLL(path), PROPERTIES[name]))
    return versions


def _version(get_property):
    parts = [ctypes.c_int(-1) for _ in range(3)]
    for kind, part in enumerate(parts):
        get_property(kind, ctypes.byref(part))
    return ".".join(str(part.value) for part in parts)
