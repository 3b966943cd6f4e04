"""Times one reference loop, as in `python loop.py pytorch/resnet50.py --batch 256 --tier tuned`.

A folder holds the loops of one framework. Each file builds a network; the folder's training.py
trains it, and inference.py runs it as a trained one (--mode inference). --runner names another file
that runs it. After its first step a loop says "ready" on stdout. The timed windows are lines of
JSON there; whatever a framework prints goes to stderr. The loops import nothing of dlbench.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path


def main():
    options = arguments()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Replaces this script's folder, in which folders have the names of frameworks.
    sys.path[0] = str(options.loop.resolve().parent)
    runs = importlib.import_module(options.runner or options.mode)
    if options.tier not in runs.TIERS:
        sys.exit(f"{options.loop}: no tier {options.tier}: choose from {runs.TIERS}")
    network = importlib.import_module(options.loop.stem)
    run = runs.prepare(*network.build(options), options)
    # Loops compile side by side, and are timed one by one.
    run(1)
    print("ready", file=answers, flush=True)
    if options.wait and not sys.stdin.readline():
        return
    for window in measure(run, options):
        print(json.dumps(window), file=answers, flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("loop", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--mode", choices=("training", "inference"), default="training")
    parser.add_argument("--runner", help="a file beside the loop, in the place of the mode's")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32",
                        help="fp16 is for inference: training would need a scale of the loss")
    parser.add_argument("--tier", default="stock")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="of all timed windows")
    parser.add_argument("--window", type=float, default=0.5, help="least seconds of a window")
    parser.add_argument("--steps", type=int, default=10, help="least steps of a window")
    parser.add_argument("--wait", action="store_true", help="for a line on stdin, once it is ready")
    parser.add_argument("--words", type=int, default=32, help="length of an LSTM's sequence")
    options = parser.parse_args()
    if options.mode == "training" and options.precision == "fp16":
        parser.error("--precision fp16: write --mode inference")
    return options


def measure(run, options):
    """Time windows of `run(steps)`, which returns when the device has finished its steps."""
    for _ in range(3):
        last = timed(run, 1)
    steps = 1
    while last < options.window or steps < options.steps:
        steps *= 2
        last = timed(run, steps)
    spent = 0.0
    while spent < options.seconds:
        seconds = timed(run, steps)
        spent += seconds
        yield {"steps": steps, "seconds": seconds}


def timed(run, steps):
    start = time.perf_counter()
    run(steps)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
