"""Compares tensors where they are: a worker sends the proof's driver sums, not tensors.

The driver says what to compare and judges the sums; `harness.proof` says what they mean. Python 3.5
syntax, because old frameworks load this.
"""

import hashlib
import threading

import numpy as np

from runners.arrays import SHARE, copied, in_threads, mapped

UNIT_ROUNDOFF_FP32 = 2.0**-24
# Numbers compared at a time. Smaller blocks stay in a core's cache, but threads then wait for
# Python's lock: eight took 0.99 s for 62 million numbers in blocks of 2**14, 0.16 s in these.
BLOCK = 2**18


class Comparisons:
    """The sums that the driver asks of plays; keeps the states of those that others refer to."""

    def __init__(self):
        # Arrays by label: those before the first step, then those after each step.
        self.kept = {}

    def begin(self, asked, start):
        """Begin a play from the arrays `start`, which no runner may change."""
        self.asked, self.start, self.first = asked, start, True
        if asked.get("keep"):
            self.kept[asked["keep"]] = [start]

    def state(self, label, step):
        """Return the arrays that a step of a kept play left behind."""
        return self.kept[label][step]

    def after_step(self, parameters):
        """Return what the file of answers says of a step, by kind and name.

        `shapes` has every parameter. One that is missing or has another shape is not compared: the
        driver refuses it. Gradients show in the first step only: later steps have momentum.
        """
        asked, first, self.first = self.asked, self.first, False
        if asked.get("keep"):
            # A copy, because a framework may lend the memory in which it trains. A parameter that
            # was not read must not move: it is the one of the start.
            parameters = copied(parameters)
            self.kept[asked["keep"]].append(
                dict(self.start, **parameters) if "only" in asked else parameters)
        found = {"shapes": {name: np.array(np.shape(value), np.float64)
                            for name, value in parameters.items()}}
        whole = asked.get("whole", [])
        found["parameters"] = parameters if whole is None else {
            name: parameters[name] for name in whole if name in parameters}
        fitting = {name for name, value in self.start.items()
                   if name in parameters and np.shape(parameters[name]) == value.shape}
        for kind in ("gradients", "changes", "masks", "momentum"):
            if kind in asked and (first or kind != "gradients"):
                found.update(getattr(self, "_" + kind)(asked[kind], parameters, fitting))
        return found

    def _gradients(self, asked, parameters, fitting):
        """Compare the first step with gradients from a file."""
        right = mapped(asked["file"])
        return {"gradients": products_of_all(step_pairs(asked["rate"]), {
            part: (self.start[name][rows], parameters[name][rows], right["gradient/" + name][rows])
            for part, name, rows in parts_of(asked, fitting)})}

    def _changes(self, names, parameters, fitting):
        """Find the largest change of each tensor."""
        rows = {name: (parameters[name], self.start[name]) for name in names if name in fitting}
        same = unchanged(rows)
        return {"changes": {name: [0.0 if same[name] else largest_change(*pair)]
                            for name, pair in rows.items()}}

    def _masks(self, asked, parameters, fitting):
        """Compare a first step with that of a kept play, and say which parts did not move."""
        rate, other = asked["rate"], self.state(asked["of"], 1)

        def squares(one, other):
            np.subtract(one, other, out=other)
            one *= UNIT_ROUNDOFF_FP32
            other /= rate
            one /= rate
            return (other, other), (one, one)

        parts = parts_of(asked, fitting)
        still = unchanged({part: (self.start[name][rows], parameters[name][rows])
                           for part, name, rows in parts})
        return {"masks": products_of_all(squares, {
                    part: (other[name][rows], parameters[name][rows])
                    for part, name, rows in parts}),
                "stands": {part: [float(still[part])] for part in still}}

    def _momentum(self, asked, parameters, fitting):
        """Compare a step of a kept play with the same step by a runner without momentum."""
        states = self.kept[asked["of"]][asked["step"] - 1:]
        first, second, third = states[:3]
        return {"momentum": products_of_all(momentum_pairs(asked["momentum"]), {
            name: (first[name], second[name], parameters[name], third[name])
            for name in asked["names"] if name in fitting})}


def parts_of(asked, fitting):
    """Return the parts that can be compared: name, tensor's name, and rows."""
    return [(part, name, slice(first, last)) for part, name, first, last in asked["parts"]
            if name in fitting]


def step_pairs(rate):
    """Compare a step from fp32 weights, before - after, with `rate` times a gradient.

    fp32 weights cannot show a step that is too small, so the right step is rounded like the
    weights. The blocks are overwritten: new memory would take longer than the arithmetic.
    """
    def combine(before, after, gradient):
        gradient *= rate
        stored = np.subtract(before, gradient, out=gradient).astype(np.float32)
        right = np.subtract(before, stored, out=gradient)
        found = before - after
        noise = np.maximum(np.abs(before, out=before), np.abs(after, out=after), out=before)
        noise *= UNIT_ROUNDOFF_FP32
        return pairs(found, right, noise)

    return combine


def momentum_pairs(momentum):
    """Compare what momentum added to a step with the move before it.

    The last step moved the weights from `first` to `second`; the next one leads to `third`. A
    runner that has just loaded `second` has no momentum; the same step leads it to `own`. The
    blocks are overwritten.
    """
    def combine(first, second, own, third):
        first -= second
        first *= momentum
        own -= third
        second *= 2 * UNIT_ROUNDOFF_FP32
        return pairs(own, first, second)

    return combine


def pairs(found, right, noise):
    """Yield the pairs whose products say how far `found` is from `right`; it overwrites both."""
    yield found, right
    yield right, right
    yield found, found
    apart = np.subtract(found, right, out=found)
    yield apart, apart
    yield noise, noise
    along = np.multiply(noise, right, out=right)
    yield along, along


def products_of(combine, *tensors):
    """Inner products in float64 of the pairs that `combine` makes of tensors of one shape."""
    return products_of_all(combine, {"": tensors})[""]


def products_of_all(combine, rows):
    """Inner products by name; `rows` holds, by name, tensors of one shape. NaN is kept.

    einsum reads each pair once and calls no BLAS, whose threads compete: nine checks of AlexNet at
    a time took 127 s on two cores with it, 7 s without.
    """
    return totals_of_all(lambda *blocks: [np.einsum("i,i->", *pair) for pair in combine(*blocks)],
                         rows)


def totals(of_block, *tensors):
    """Add up what `of_block` makes of float64 blocks of tensors; it may overwrite these copies."""
    return totals_of_all(of_block, {"": tensors})[""]


def totals_of_all(of_block, rows):
    """Add up by name, in an order that does not depend on the threads.

    A thread casts all its blocks into the same memory: new pages would take longer than sums.
    """
    memory = threading.local()

    def cast(blocks):
        held = memory.__dict__.setdefault("held", [])
        held += [np.empty(BLOCK) for _ in blocks[len(held):]]
        for block, room in zip(blocks, held):
            np.copyto(room[:block.size], block)
            yield room[:block.size]

    def of_share(*tensors):
        found = [of_block(*cast(blocks)) for blocks in blocks_of(tensors)]
        return [float(sum(column)) for column in zip(*found)]

    return {name: [float(sum(column)) for column in zip(*found)]
            for name, found in by_share(of_share, rows).items()}


def unchanged(rows):
    """Return by name whether its tensors are equal. Blocks need no mask of a whole tensor."""
    def same(one, *others):
        return all(np.array_equal(*blocks)
                   for other in others for blocks in blocks_of((one, other)))

    return {name: all(found) for name, found in by_share(same, rows).items()}


def by_share(work, rows):
    """Return by name what `work` makes of each share of tensors of one shape.

    Threads take the shares of all names: the tensors of ResNet-50 are too small to be divided.
    """
    flat = {name: [tensor.reshape(-1) for tensor in tensors] for name, tensors in rows.items()}
    jobs = [(name, first) for name, tensors in flat.items()
            for first in range(0, max(1, tensors[0].size), SHARE)]

    def of_job(job):
        name, first = job
        return work(*(tensor[first:first + SHARE] for tensor in flat[name]))

    found = {name: [] for name in rows}
    for (name, _), made in zip(jobs, in_threads(of_job, jobs)):
        found[name].append(made)
    return found


def blocks_of(tensors):
    """Cut flat tensors of one size into blocks; an empty one has one."""
    return [[each[first:first + BLOCK] for each in tensors]
            for first in range(0, max(1, tensors[0].size), BLOCK)]


def largest_change(after, before):
    """Return the largest change of a tensor, as a share of its largest value; NaN kept."""
    change = np.abs(after - before).max()
    return float(change / (np.abs(before).max() or 1.0))


def hash_of(parameters):
    """Return the SHA-256 over names and the SHA-256 of each share of float32 bytes."""
    shares = by_share(lambda share: hashlib.sha256(share).digest(), {
        name: [np.ascontiguousarray(each, dtype=np.float32)] for name, each in parameters.items()})
    digest = hashlib.sha256()
    for name in sorted(shares):
        digest.update(name.encode())
        digest.update(b"".join(shares[name]))
    return digest.hexdigest()


def apart(copies, weights, units):
    """Measure each parameter that differs between copies, by name.

    `share` is the largest difference as a share of the largest change since `weights`; `beyond` is
    the same without `units` units in the last place. Either is inf if a value is not finite.
    """
    def largest(start, *values):
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        place = np.spacing(np.maximum(np.abs(low), np.abs(high))).astype(np.float64)
        low, high = low.astype(np.float64), high.astype(np.float64)
        change = np.maximum(np.abs(low - start), np.abs(high - start))
        high -= low
        return high.max(), (high - units * place).max(), change.max()

    values = {name: [np.ascontiguousarray(copy[name], dtype=np.float32) for copy in copies]
              for name in copies[0]}
    # As whole numbers: 0 and -0 differ, and NaN is equal to itself.
    same = unchanged({name: [each.view(np.uint32) for each in held]
                      for name, held in values.items()})
    found = {}
    for name, parts in by_share(largest, {
            name: [weights[name]] + held for name, held in values.items()
            if not same[name]}).items():
        # NumPy's largest number keeps NaN.
        difference, beyond, change = np.max(parts, 0)
        # Where only 0 and -0 differ, nothing has changed.
        found[name] = {key: float(part) if np.isfinite(part) else float("inf") for key, part in (
            ("share", difference / (change or 1.0)),
            ("beyond", np.maximum(beyond, 0) / (change or 1.0)))}
    return found
