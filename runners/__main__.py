"""Start a worker: `python -m runners runners.pytorch.runner`."""

import sys

from runners import session

if __name__ == "__main__":
    session.main(sys.argv[1])
