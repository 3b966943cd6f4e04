"""The reference with random rounding: how far correct arithmetic of a precision may be off.

Monte Carlo arithmetic (Parker 1997; Verificarlo, Denis et al. 2016): every result x becomes
round(s x) / s, rounded to the precision's significand, with s drawn anew for each tensor and run.
So equal numbers round in the same direction, as they do in a framework, and each run has another
grid. The spread over many runs is what correct implementations may show. All operands of matrix
products are rounded. In bf16 and fp16 the outputs and gradients of all layers are rounded too,
because frameworks store them so; batch norm's and the loss's own sums stay exact, as they stay in
fp32.
"""

import numpy as np

from runners.reference import runner
from runners.reference.operations import OPERATIONS

# Bits of the significand, with the leading one. fp32 has 24; long sums lose three more.
BITS = {"fp32": 21, "tf32": 11, "bf16": 8, "fp16": 11}
FLOAT64_BITS = 53
STORED = ("bf16", "fp16")
PRODUCTS = ("dense", "conv2d", "lstm", "embedding")


class Runner(runner.Runner):
    """A reference whose every pass rounds otherwise. `task.seed` draws the rounding."""

    def __init__(self, task, precision):
        self.generator = np.random.RandomState(task.seed)
        self.splitter = 2.0 ** (FLOAT64_BITS - BITS[precision]) + 1
        self.stored = precision in STORED
        self.drawn = None
        super().__init__(task)
        for layer in self.layers:
            if layer["op"] == "lstm":
                self.attributes[layer["name"]]["rounded"] = self.rounded
        self.operations = {op: self._rounding(op, *pair) for op, pair in OPERATIONS.items()}

    def differentiate(self, x, targets):
        # A cast of a weight serves the forward and the backward pass.
        self.drawn = {}
        return super().differentiate(x, targets)

    def rounded(self, x):
        """Round every number to the precision on a grid of its own (Veltkamp's splitting)."""
        scale = 2.0 ** self.generator.random_sample()
        scaled = x * scale
        high = scaled * self.splitter
        scaled -= high
        high += scaled
        high /= scale
        return high

    def _rounding(self, op, forward, backward):
        product = op in PRODUCTS

        def rounded_forward(a, w, *inputs):
            if product and not self.stored and op != "embedding":
                inputs = [self.rounded(x) for x in inputs]
            y, saved = forward(a, w, *inputs)
            return self.rounded(y) if self.stored or product else y, saved

        def rounded_backward(a, w, saved, dy):
            if product and not self.stored:
                dy = self.rounded(dy)
            inputs, parameters = backward(a, w, saved, dy)
            if self.stored:
                inputs = [dx if dx is None else self.rounded(dx) for dx in inputs]
            if product:
                parameters = {name: self.rounded(each) for name, each in parameters.items()}
            return inputs, parameters

        return rounded_forward, rounded_backward

    def _weights_of(self, layer):
        weights = super()._weights_of(layer)
        if layer["op"] not in PRODUCTS or self.drawn is None:
            return weights
        if layer["name"] not in self.drawn:
            self.drawn[layer["name"]] = {name: self.rounded(each)
                                         for name, each in weights.items()}
        return self.drawn[layer["name"]]
