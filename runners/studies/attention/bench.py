"""What the modules of the attention study share: place operands, check a result, then repeat it.

A point is a batch of B sequences of T tokens, H heads of D values, with or without a causal mask,
in one precision, and a pass: forward, or forward with the gradients of q, k and v. Its candidates
are the framework's implementations. The call that is timed is the one whose result was compared.
"""

import os
import re
from pathlib import Path

import numpy as np

from runners.protocol import Product, Unsupported
from runners.studies import candidates
from runners.studies.attention import reference
from runners.studies.candidates import Candidate, relative_error

# How frameworks say that they have no such kernel; any other error is a failure.
REFUSALS = re.compile(
    r"not implemented|not (currently )?support|unsupported|only support|not detected|"
    r"no (available|viable) (kernel|backend)|must be .*float|requires? .*(compute|arch|sm)", re.I)
# Operators that say which implementation ran; views, masks and copies do not.
TELLING = re.compile(r"attention|mm$|matmul|einsum|softmax|^dot|custom|CompiledFxGraph", re.I)


class AttentionBench(candidates.Bench):
    """Subclasses say how a framework does what follows."""

    REFUSALS = REFUSALS
    # The names of the framework's implementations.
    IMPLEMENTATIONS = ()

    def __init__(self, task):
        super().__init__(task)
        self.drawn = {}
        self.exact = {}

    def operand(self, array, precision):
        """Take a float32 array (B, T, H, D) to the device, in the framework's layout."""
        raise NotImplementedError

    def attention(self, name, operands, point):
        """Return a function without arguments: it computes (o,) or (o, dq, dk, dv)."""
        raise NotImplementedError

    def wait(self, result):
        raise NotImplementedError

    def head(self, tensor, sample, head):
        """Return one head as a NumPy array (T, D)."""
        raise NotImplementedError

    def candidates(self, point):
        # All candidates share the operands, which the first one places.
        placed = []
        for name in self.IMPLEMENTATIONS:
            yield name, lambda name=name: self._candidate(name, placed, point)

    def _candidate(self, name, placed, point):
        if point["precision"] == "tf32" and self.task.device != "cuda":
            raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
        if not placed:
            placed.extend(self.operand(array, point["precision"]) for array in self._arrays(point))
        compute = self.attention(name, placed, point)
        repeated = Product(compute, self.wait)
        repeated.step()
        repeated.synchronize()
        errors = self._errors(repeated.result, point)
        written = " ".join(f"{name}={error:.2g}" for name, error in errors.items())
        # Not `max`, which a NaN may pass.
        return Candidate(repeated.step, repeated.synchronize, compute=compute, errors=written,
                         error=float(np.max(list(errors.values()))))

    def _arrays(self, point):
        shape = tuple(point[key] for key in ("batch", "length", "heads", "width"))
        count = int(np.prod(shape))
        for number, name in enumerate(reference.OPERANDS):
            # Shorter operands are the beginning of longer ones.
            if len(self.drawn.get(name, ())) < count:
                self.drawn[name] = reference.draw(number, count)
            yield self.drawn[name][:count].reshape(shape)

    def _errors(self, results, point):
        """Return the relative L2 error of each result over the heads that are compared."""
        heads = reference.checked_heads(point["batch"], point["length"], point["heads"])
        exact = self._exact(point, heads)  # (4 results, heads, T, D)
        wanted = reference.RESULTS[:1 if point["pass"] == "forward" else None]
        return {name: relative_error(
            np.stack([self.head(result, *where).astype(np.float64) for where in heads]), right)
            for name, result, right in zip(wanted, results, exact[:len(wanted)], strict=True)}

    def _exact(self, point, heads):
        """Return the exact results; a study's processes share them in a folder, if it names one."""
        key = "-".join(str(point[name]) for name in ("batch", "length", "heads", "width", "causal"))
        if key in self.exact:
            return self.exact[key]
        file = Path(os.environ.get("DLBENCH_EXACT", os.devnull)) / f"{key}.npy"
        if file.is_file():
            self.exact[key] = np.load(file)
        else:
            arrays = list(self._arrays(point))
            found = [reference.exact(*(array[sample, :, head] for array in arrays),
                                     point["causal"] == "yes") for sample, head in heads]
            self.exact[key] = np.array([[each[name] for each in found]
                                        for name in reference.RESULTS])
            if file.parent.is_dir():
                # Renamed, so that a process that is killed leaves no half of a file.
                np.save(file.with_suffix(".part.npy"), self.exact[key])
                file.with_suffix(".part.npy").rename(file)
        return self.exact[key]
