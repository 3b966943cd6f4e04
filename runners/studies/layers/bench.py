"""What the modules of the layers study share: check a layer against the reference, then repeat it.

A framework's module offers `OPERATIONS` (by layer, in that framework's own idiom) and a subclass of
`LayerBench`. Candidates are the forward pass, and forward with backward, which computes the
gradients of every float input.
"""

import re

import numpy as np

from runners.protocol import Product
from runners.studies import candidates
from runners.studies.candidates import Candidate, relative_error
from runners.studies.layers import reference

CHECKED_BATCH = 2
# What most frameworks call them, by layout and dimensions.
FORMATS = {("nchw", 3): "NCW", ("nchw", 4): "NCHW", ("nchw", 5): "NCDHW",
           ("nhwc", 3): "NWC", ("nhwc", 4): "NHWC", ("nhwc", 5): "NDHWC"}
# How frameworks say that they have no such kernel; any other error is a failure.
REFUSALS = re.compile(
    r"not implemented|unimplemented|not (currently )?support|only support|unsupported|"
    r"no registered|not registered|no kernel|could not create a primitive|must be .*float|"
    r"expected .*type|not found in kernel", re.I)


class LayerBench(candidates.Bench):
    """Subclasses say how a framework does what follows; `point` is what is computed."""

    REFUSALS = REFUSALS
    # The framework's functions (tensors, point) by layer.
    OPERATIONS = {}
    # Layouts whose weights are (*kernel, in, out).
    WEIGHT_LAST = ()
    # Whether nhwc is another shape, or only another order in memory.
    TRANSPOSED = True

    def place(self, name, array, point):
        """Take a NumPy array to the device."""
        raise NotImplementedError

    def layer(self, operation, tensors, names, upstream):
        """Return (forward, backward), functions without arguments.

        `forward` returns the output `operation(tensors)`; `backward` returns it with the gradients
        of the inputs in `names`, by name.
        """
        raise NotImplementedError

    def wait(self, result):
        raise NotImplementedError

    def numpy(self, tensor):
        return tensor.numpy()

    def candidates(self, point):
        # Batch -> a layer's inputs and functions, which both candidates share.
        layers = {}
        for kind in ("forward", "forward_backward"):
            yield kind, lambda kind=kind: self._candidate(point, layers, kind == "forward_backward")

    def _candidate(self, point, layers, backward):
        for batch in (CHECKED_BATCH, point["batch"]):
            if batch not in layers:
                layers[batch] = self._made(point, batch)
        error = self._error(point, layers, backward)
        repeated = Product(layers[point["batch"]][1 + backward], self.wait)
        repeated.step()
        repeated.synchronize()
        return Candidate(repeated.step, repeated.synchronize, error=error)

    def _error(self, point, layers, backward):
        """Return the largest relative error of a small batch: of the output or any gradient."""
        arrays, forward, both = layers[CHECKED_BATCH]
        output, gradients = both() if backward else (forward(), {})
        output = self._canonical("x", self.numpy(output), point)
        # The units of dropout are others each time.
        if "exact" not in layers or point["layer"] == "dropout":
            upstream = reference.draw_upstream(point, reference.output_shape(point, arrays))
            layers["exact"] = reference.exact(point, arrays, upstream, output)
        exact, exact_gradients = layers["exact"]
        if not backward:
            return compared(output, exact)
        return max(compared(self._canonical(name, self.numpy(gradients[name]), point), wanted)
                   for name, wanted in exact_gradients.items())

    def _made(self, point, batch):
        arrays = reference.draw(point, batch)
        upstream = reference.draw_upstream(point, reference.output_shape(point, arrays))
        tensors = {name: self.place(name, self._native(name, array, point), point)
                   for name, array in arrays.items()}
        upstream = self.place("upstream", self._native("x", upstream, point), point)
        operation = self.OPERATIONS[point["layer"]]
        # Labels are whole numbers, and so are an embedding's words: they have no gradient.
        names = [name for name in tensors
                 if name != "labels" and not (name == "x" and "table" in tensors)]
        return arrays, *self.layer(lambda given: operation(given, point), tensors, names, upstream)

    def _native(self, name, array, point):
        """Reorder axes from the canonical order to the framework's."""
        if name == "weight" and point["layout"] in self.WEIGHT_LAST:
            return np.ascontiguousarray(np.moveaxis(array, (0, 1), (-1, -2)))
        if name == "x" and self._is_transposed(point):
            return np.ascontiguousarray(np.moveaxis(array, 1, -1))
        return array

    def _canonical(self, name, array, point):
        array = array.astype(np.float64)
        if name == "weight" and point["layout"] in self.WEIGHT_LAST:
            return np.moveaxis(array, (-1, -2), (0, 1))
        return np.moveaxis(array, -1, 1) if name == "x" and self._is_transposed(point) else array

    def _is_transposed(self, point):
        return self.TRANSPOSED and point["layout"] == "nhwc"


def compared(computed, exact):
    if computed.shape != exact.shape:
        raise ValueError(f"shape {computed.shape}, the reference has {exact.shape}")
    return relative_error(computed, exact)
