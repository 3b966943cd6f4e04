"""What the modules of the layers study share: a bench that checks a layer against the reference, then repeats it.

A framework's module offers `OPERATIONS` (by layer, in that framework's own idiom) and a bench with `place`, `apply`,
`differentiate`, `wait` and `numpy`. Candidates are the forward pass and forward with backward, of which the gradients with
respect to every float input are wanted.
"""

import re

import numpy as np

from runners.protocol import Unsupported
from runners.studies import candidates
from runners.studies.candidates import Candidate, relative_error
from runners.studies.layers import reference

CHECKED_BATCH = 2
FORMATS = {  # what most frameworks call them, by layout and dimensions
    ("nchw", 3): "NCW", ("nchw", 4): "NCHW", ("nchw", 5): "NCDHW", ("nhwc", 3): "NWC", ("nhwc", 4): "NHWC", ("nhwc", 5): "NDHWC",
}
# How frameworks say that they have no such kernel; anything else that goes wrong is a failure.
REFUSALS = re.compile(r"not implemented|unimplemented|not (currently )?support|only support|unsupported|no registered|"
                      r"not registered|no kernel|could not create a primitive|must be .*float|expected .*type|not found in kernel",
                      re.I)


class LayerBench(candidates.Bench):
    """Subclasses say how a framework does what follows; `point` is what is computed."""

    WEIGHT_LAST = ()  # layouts whose weights are (*kernel, in, out)
    TRANSPOSED = True  # whether nhwc is another shape (True) or only another order in memory

    def place(self, name, array, point):
        """Take a NumPy array to the device."""
        raise NotImplementedError

    def layer(self, point, tensors, upstream):
        """Return (forward, backward): functions without arguments that return the output, and (output, gradients by name)."""
        raise NotImplementedError

    def wait(self, result):
        raise NotImplementedError

    def numpy(self, tensor):
        raise NotImplementedError

    def candidates(self, point):
        layers = {}  # by batch: both candidates share what is drawn
        for kind in ("forward", "forward_backward"):
            yield kind, lambda kind=kind: self._candidate(point, layers, kind == "forward_backward")

    def _candidate(self, point, layers, backward):
        try:
            for batch in (CHECKED_BATCH, point["batch"]):
                if batch not in layers:
                    layers[batch] = self._made(point, batch)
            error = self._error(point, layers, backward)
            repeated = Repeated(layers[point["batch"]][1 + backward], self.wait)
            repeated.step()
            repeated.synchronize()
        except Exception as refusal:
            if isinstance(refusal, NotImplementedError) or REFUSALS.search(str(refusal)):
                raise Unsupported(candidates.first_line(refusal)) from refusal
            raise
        return Candidate(repeated.step, repeated.synchronize, error=error)

    def _error(self, point, layers, backward):
        """The largest relative error of a small batch: of the output, or of any gradient."""
        arrays, forward, both = layers[CHECKED_BATCH]
        output, gradients = both() if backward else (forward(), {})
        output = self._canonical("x", self.numpy(output), point)
        if "exact" not in layers or point["layer"] == "dropout":  # whose units are others each time
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
        tensors = {name: self.place(name, self._native(name, array, point), point) for name, array in arrays.items()}
        forward, backward = self.layer(point, tensors, self.place("upstream", self._native("x", upstream, point), point))
        return arrays, forward, backward

    def _native(self, name, array, point):
        """From the canonical order of axes to the framework's."""
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


class Repeated:
    """What is repeated keeps its last result, so that it can be waited for."""

    def __init__(self, function, wait):
        self.function, self.wait, self.result = function, wait, None

    def step(self):
        self.result = self.function()

    def synchronize(self):
        self.wait(self.result)


def floats(tensors):
    """Names of the inputs that have a gradient."""
    return [name for name in tensors if not is_count(name, tensors)]


def is_count(name, tensors):
    """Labels are whole numbers, and so are an embedding's words."""
    return name == "labels" or (name == "x" and "table" in tensors)


def compared(computed, exact):
    if computed.shape != exact.shape:
        raise ValueError(f"shape {computed.shape}, the reference has {exact.shape}")
    return relative_error(computed, exact)
