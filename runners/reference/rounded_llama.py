"""The reference of Llama with random rounding, as `rounded_transformers` has that of GPT-2."""

from runners.reference import rounded_transformers
from runners.reference.llama import OPERATIONS

PRODUCTS = ("linear", "grouped_attention")


class Runner(rounded_transformers.Runner):
    def __init__(self, task, precision):
        super().__init__(task, precision)
        for layer in self.layers:
            if layer["op"] == "grouped_attention":
                self.attributes[layer["name"]]["rounded"] = self.rounded
        # `rounded` casts the weights of layers that it knows.
        self.by_name.update((layer["name"], dict(layer, op="dense"))
                            for layer in self.layers if layer["op"] == "linear")
        self.operations.update(
            (op, self._rounding("dense" if op in PRODUCTS else op, *pair))
            for op, pair in OPERATIONS.items())
