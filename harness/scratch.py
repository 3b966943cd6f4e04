"""A worker's folder for temporary files: made before it, gone with it, however it ends.

Frameworks leave files behind even where they end well (TensorFlow's /tmp/__autograph_generated_file*, torchrun's
/tmp/torchelastic_*), so each worker has a folder of its own as TMPDIR. Compilers' caches that are meant to outlive it stay outside.
"""

import getpass
import os
import tempfile
from collections.abc import Mapping

# A Unix socket's path has room for 107 bytes. Open MPI puts its own 40 to 50 below the folder (ompi.HOST.USER/pid.NUMBER/...),
# the folder's name takes 16: what is left for the place where it stands.
LONGEST_PLACE = 32
SHORT_PLACE = "/tmp"


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder under the driver's TMPDIR, or under /tmp where that would leave no room for a socket's path."""
    place = tempfile.gettempdir()
    short = place if len(os.fsencode(place)) <= LONGEST_PLACE else SHORT_PLACE
    return tempfile.TemporaryDirectory(prefix="dlbench-", dir=short, ignore_cleanup_errors=True)


def variables(folder: str, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what sends a worker's temporary files to `folder`, and keeps TorchInductor's cache (with Triton's) where it was."""
    cache = inherited.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    return {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": cache}
