"""JAX that tells, in place of an answer, how many threads XLA's CPU pool has."""

from pathlib import Path

from runners.jax.runner import Runner as Correct
from runners.protocol import Unsupported


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        raise Unsupported(f"{sum(name.startswith('tf_XLAEigen') for name in names)} threads in XLA's pool")
