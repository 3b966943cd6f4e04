"""What the hand-written loops share: arguments, pinning, and timing the steps that stdin asks for.

It imports nothing of dlbench, so that scripts/overhead.py does not compare dlbench with itself.
"""

import argparse
import os
import sys
import time


def arguments(networks):
    """Read the command line and pin to the cores; call it before importing the framework."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=networks, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True,
                        help="how many mini-batches are on the device, used in turn")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cores", type=int, nargs="*", default=[])
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    return options


def serve(train_step, synchronize, parameters):
    """Print the number of parameters; then the seconds of each number of steps on stdin."""
    print(parameters, flush=True)
    for line in sys.stdin:
        synchronize()
        start = time.perf_counter()
        for _ in range(int(line)):
            train_step()
        synchronize()
        print(time.perf_counter() - start, flush=True)
