"""What the hand-written loops share: their arguments, pinning, and timing as many steps as stdin asks for.

It is no part of dlbench and imports nothing of it, so that scripts/overhead.py compares dlbench with something else than itself.
"""

import argparse
import os
import sys
import time


def arguments(networks):
    """Read the command line and pin to the cores; call it before the framework is imported and counts them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=networks, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True, help="how many mini-batches lie on the device, used in turn")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cores", type=int, nargs="*", default=[])
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    return options


def serve(train_step, synchronize, parameters):
    """Print the number of trained parameters; then, for each number of steps on stdin, the seconds that they took."""
    print(parameters, flush=True)
    for line in sys.stdin:
        synchronize()
        start = time.perf_counter()
        for _ in range(int(line)):
            train_step()
        synchronize()
        print(time.perf_counter() - start, flush=True)
