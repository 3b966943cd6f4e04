"""What engines with trained weights answer to a labelled test part, held against the reference.

Every output is compared. So a fault that meets a few samples, which the proof's rows may miss, is
refused, or shows in the accuracy where rounding could explain it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import networks
import runners.arrays
from harness.data import data_sets, divided
from networks import work

# Of the reference, for all samples: minutes of one core. A larger network is asked fewer samples.
MOST_OPERATIONS = 4e11


@dataclass(frozen=True, eq=False)
class TestPart:
    """Samples of a set's test part: their file, labels [n] and places in that part [n]."""

    # pytest takes a class of such a name for a test.
    __test__ = False

    file: Path
    labels: np.ndarray
    numbers: np.ndarray


@dataclass(frozen=True, eq=False)
class Answered:
    """The answers of an engine [n], those of the unquantised reference [n], and what is wrong."""

    tests: TestPart
    answers: np.ndarray
    exact: np.ndarray
    fault: str = ""

    @property
    def columns(self) -> dict[str, Any]:
        """Return what a process records: both shares of right answers, and of how many samples."""
        labels = self.tests.labels
        return {"test_accuracy": float(np.mean(self.answers == labels)),
                "test_samples": len(labels),
                "reference_accuracy": float(np.mean(self.exact == labels))}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of answers.csv."""
        tests = self.tests
        columns = (tests.numbers, tests.labels, self.answers, self.exact)
        names = ("sample", "label", "answer", "reference")
        return [dict(zip(names, row, strict=True))
                for row in zip(*(column.tolist() for column in columns), strict=True)]


def draw(network: networks.Network, data: str, file: Path) -> TestPart:
    """Write the samples that are asked into `file`: the whole test part, or a seeded part of it.

    The file holds no labels. Raises WrongUse.
    """
    images, labels = divided.divide(data, network).test.images
    most = int(MOST_OPERATIONS / work.flops_per_step(network, 1, "inference"))
    order = np.random.default_rng(divided.SEED).permutation(len(images))
    numbers = np.sort(order[:max(1, most)])
    inputs, own = data_sets.prepared(data, network, images[numbers], labels[numbers])
    runners.arrays.save(file, {"inputs": inputs})
    return TestPart(file, own, numbers)
