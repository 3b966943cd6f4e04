"""Derives the limits of the proof again where what they depend on has changed.

Run it from the checkout after a change of a network or of runners/reference: names of networks, or
all of them. It writes harness/proof/limits/, network by network; it takes minutes for a network on
ImageNet's images. `--check` says which are missing or out of date and exits with 1.

    .venv/bin/python scripts/derive_limits.py resnet50 fcn5
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import networks  # noqa: E402
from harness.plan.parts import Check  # noqa: E402
from harness.proof import limits  # noqa: E402
from harness.proof.questions import PLAIN, SMOOTH, Questions  # noqa: E402
from harness.workers.alive import LiveWorkers  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
REFERENCE_SECONDS = 7200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    samples = Check().batch
    every = [networks.get(name) for name in asked.networks
             or [*networks.names(small=True), *networks.names()]]
    stale = [(network, missing) for network in every if (missing := _missing(network, samples))]
    for network, missing in stale:
        if asked.check:
            print(f"{network.name}: {', '.join(missing)}: missing or out of date; run "
                  f"scripts/derive_limits.py {network.name}")
        else:
            _derive(network, samples)
    return 1 if asked.check and stale else 0


def _derive(network: networks.Network, samples: int) -> None:
    found = _known(network, samples)
    with tempfile.TemporaryDirectory() as folder:
        questions = Questions(Path(folder), 1, REFERENCE_SECONDS, LiveWorkers())
        for name in _wanted(network):
            if name in found:
                continue
            precision, kind = name.split()
            began = time.monotonic()
            found[name] = limits.derive(questions, network, samples, kind, precision)
            limits.keep(network, samples, found, limits.KEPT)
            print(f"{network.name} {name}: {time.monotonic() - began:.0f} s", flush=True)


def _wanted(network: networks.Network) -> list[str]:
    kinds = (PLAIN, SMOOTH) if network.has_batch_norm else (PLAIN,)
    return [f"{precision} {kind}" for precision in PRECISIONS for kind in kinds]


def _missing(network: networks.Network, samples: int) -> list[str]:
    known = _known(network, samples)
    return [name for name in _wanted(network) if name not in known]


def _known(network: networks.Network, samples: int) -> dict[str, object]:
    return limits.read(limits.KEPT, network, samples)


if __name__ == "__main__":
    sys.exit(main())
