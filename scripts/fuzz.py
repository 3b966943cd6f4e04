"""Tries odd input for as long as asked: scripts/fuzz.py KIND --minutes 10 [--seed 1].

Prints each finding with what reproduces it; exits with 1 if there is one.
"""

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
KINDS = ("suites", "options", "answers", "records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    sys.path.insert(0, str(CHECKOUT))
    fuzzer = importlib.import_module(f"scripts.fuzzing.{given.kind}")
    until, tried, found = time.monotonic() + 60 * given.minutes, 0, 0
    with tempfile.TemporaryDirectory(prefix="dlbench-fuzz-") as folder:
        for what, fault in fuzzer.fuzz(given.seed, Path(folder)):
            tried += 1
            if fault:
                found += 1
                print(f"{what}\n  {fault}", flush=True)
            if time.monotonic() > until:
                break
    print(f"{given.kind}, seed {given.seed}: {tried:,} tried, {found} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
