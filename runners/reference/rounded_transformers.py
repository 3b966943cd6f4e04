"""The reference of Transformers with random rounding, as `rounded` has that of other networks.

Attention is a product whose scores, probabilities and their gradients are rounded too, because
frameworks hand them to matrix products or store them.
"""

from runners.reference import rounded
from runners.reference.transformers import OPERATIONS

PRODUCTS = ("attention", "tied_dense")


class Runner(rounded.Runner):
    def __init__(self, task, precision):
        super().__init__(task, precision)
        for layer in self.layers:
            if layer["op"] == "attention":
                self.attributes[layer["name"]]["rounded"] = self.rounded
        self.by_name = {layer["name"]: layer for layer in self.layers}
        # `rounded` treats alike all that it does not call a product.
        self.operations.update(
            (op, self._rounding("dense" if op in PRODUCTS else op, *pair))
            for op, pair in OPERATIONS.items())

    def _weights_of(self, layer):
        # A cast of a tied table serves both of its uses.
        return super()._weights_of(self.by_name[self._owner(layer)] if self.drawn is not None
                                   else layer)
