"""Start a worker: `python -m runners runners.pytorch.runner`. The module is imported once stdout is out of its reach."""

import sys

from runners import protocol

if __name__ == "__main__":
    protocol.main(sys.argv[1])
