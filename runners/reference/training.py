"""What the reference answers while frameworks train to a target: outputs and gradients.

Python 3.6 syntax, like the reference.
"""

import numpy as np

from runners.arrays import batches as batches_of
from runners.arrays import mapped
from runners.reference import answers

# Samples that are computed together: what layers keep of them stays small.
TOGETHER = 250


def session():
    return Answers()


class Answers(answers.Built):
    """The commands, one method each. No layer normalises batches or drops units."""

    def outputs(self, weights, inputs, out):
        """Save the float64 outputs for `inputs` (n, ...)."""
        self.runner.load(mapped(weights))
        samples = mapped(inputs)["inputs"]
        found = [self.runner.forward(self.runner._place(samples[first:first + TOGETHER]))[0]
                 for first in range(0, len(samples), TOGETHER)]
        np.savez(out, outputs=np.concatenate(found))
        return {}

    def gradients(self, weights, batches, number, out):
        """Save the float64 gradients of batch `number` at these weights, by full name."""
        self.runner.load(mapped(weights))
        inputs, targets = batches_of(mapped(batches))
        _, gradients = self.runner.differentiate(inputs[number], targets[number])
        np.savez(out, **dict(gradients))
        return {}
