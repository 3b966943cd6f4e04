"""Runs a framework's launcher on one node: `python -m runners.node WORDS...`.

In a word {node} becomes this node's number, and {scratch} a folder that only its user reads and
that goes with the launcher: some write their environment there, and it holds the driver's secret.
"""

import os
import signal
import subprocess
import sys
import tempfile


def main(words):
    """Run Python with these words; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="dlbench-") as scratch:
        meaning = {"node": os.environ["SLURM_PROCID"], "scratch": scratch}
        launcher = subprocess.Popen([sys.executable] + [word.format(**meaning) for word in words])
        signal.signal(signal.SIGTERM, lambda number, frame: launcher.send_signal(number))
        code = launcher.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
