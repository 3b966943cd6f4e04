"""Leaves a file in the temporary folder, as frameworks do."""

import os
import tempfile

from tests.workers.ranks import Runner  # noqa: F401

handle, _ = tempfile.mkstemp(prefix="litter-")
os.close(handle)
