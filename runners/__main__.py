"""Start a worker: `python -m runners runners.pytorch.runner`."""

import sys

from runners import wire

if __name__ == "__main__":
    wire.main(sys.argv[1])
