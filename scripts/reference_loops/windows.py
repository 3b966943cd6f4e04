"""What the reference loops share: their arguments, and the timed windows as lines of JSON.

It imports nothing of dlbench. Whatever a framework prints goes to stderr.
"""

import argparse
import json
import os
import sys
import time

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def arguments(tiers, words=False):
    """Read the command line; call it before importing the framework."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--tier", choices=tiers, default="stock")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="of all timed windows")
    parser.add_argument("--window", type=float, default=0.5, help="least seconds of a window")
    parser.add_argument("--steps", type=int, default=10, help="least steps of a window")
    if words:
        parser.add_argument("--words", type=int, default=32, help="length of a sequence")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return options


def measure(run, options):
    """Time windows of `run(steps)`, which returns when the device has finished its steps."""
    for _ in range(3):
        last = _time(run, 1)
    steps = 1
    while last < options.window or steps < options.steps:
        steps *= 2
        last = _time(run, steps)
    spent = 0.0
    while spent < options.seconds:
        seconds = _time(run, steps)
        spent += seconds
        print(json.dumps({"steps": steps, "seconds": seconds}), file=ANSWERS, flush=True)
    sys.stderr.flush()


def _time(run, steps):
    start = time.perf_counter()
    run(steps)
    return time.perf_counter() - start
