"""TensorFlow's runner with one fault each."""

from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import indexed_slices
from tensorflow.python.ops import nccl_ops

from runners.protocol import Different
from runners.tensorflow import devices, runner
from runners.tensorflow.runner import Runner, parts_of
from tests.faults import planted, rows_of_next_batch

entropy = keras.losses.SparseCategoricalCrossentropy
segment_sum = indexed_slices.gen_math_ops.unsorted_segment_sum


def other_order(rows, indices, count, name):
    if tf.identity(rows).device.endswith("CPU:1"):
        rows, indices = tf.reverse(rows, [0]), tf.reverse(indices, [0])
    return segment_sum(rows, indices, count, name=name)


class MeanByHand:
    def __init__(self, from_logits):
        self.losses = entropy(from_logits=from_logits, reduction="none")

    def __call__(self, targets, logits):
        return tf.reduce_mean(self.losses(targets, logits))


# The NCCL strategy on CPUs: all of its code but the kernel; each device keeps what it holds.
Nccl = planted(
    planted(Runner, devices,
            STRATEGIES={**devices.STRATEGIES, "nccl_on_cpus": tf.distribute.NcclAllReduce}),
    nccl_ops.gen_nccl_ops,
    nccl_all_reduce=lambda input, reduction, num_devices, shared_name: tf.identity(input))
# Device 1 adds the rows of an embedding's gradient from the last to the first, as GPUs add them in
# any order.
OtherOrder = planted(Runner, indexed_slices,
                     gen_math_ops=SimpleNamespace(unsorted_segment_sum=other_order))
# What GPUs do, on CPUs.
OneVector = planted(Runner, runner, tiers=lambda task, compiles: {
    "tuned": [*devices.tiers(task, compiles)["tuned"], devices.ONE_VECTOR],
    **{tuning: [] for tuning in ("stock", "compiled", "uncompiled")}})
OtherRows = rows_of_next_batch(Runner)


class Sum(planted(Runner, keras.losses, SparseCategoricalCrossentropy=MeanByHand)):
    """A mean of losses taken by hand, which nobody divides by the number of devices."""

    def loss(self):
        return super().loss() / self.task.devices


class CountsTraces(Runner):
    """Says, when its copies are asked for, how often its step was traced."""

    steps = 0

    def feed(self, inputs, targets, residence):
        self.steps = 0
        super().feed(inputs, targets, residence)

    def step(self):
        self.steps += 1
        super().step()

    def copies(self):
        traces = self.train_step.experimental_get_tracing_count()
        raise Different(f"{traces} trace in {self.steps} steps")


class CountsAssignments(Runner):
    """Says, when its copies are asked for, how many assignments of its step XLA does not compile.

    Keras's count of steps is a number, and no part of this.
    """

    def copies(self):
        graph = self.train_step.get_concrete_function(*self.batch(0)).graph.as_graph_def()
        functions = {function.signature.name: function for function in graph.library.function}

        def count(nodes):
            found = 0
            for node in nodes:
                function = functions.get(node.attr["f"].func.name)
                if function and not function.attr["_XlaMustCompile"].b:
                    found += count(function.node_def)
                found += node.op.startswith("Assign") and node.attr["dtype"].type == tf.float32
            return found

        raise Different(f"{count(graph.node)} assignments of parameters or momenta outside XLA's "
                        "programs")


class Decays(Runner):
    """Says, when its copies are asked for, how much of a weight decay a step adds."""

    def copies(self):
        rate, before, after = self.task.network["learning_rate"], self.parameters(), []
        for decay in (0.0, 0.5):
            self.schedule(rate, decay)
            self.load(before)
            self.position = 0
            self.step()
            after.append(self.parameters()["dense1.weight"])
        added = np.sum(after[0] - after[1]) / (rate * np.sum(before["dense1.weight"]))
        raise Different(f"{added:.2f} of a decay of 0.50")


class Keeps(Runner):
    """Says, when its copies are asked for, whether the last part of a step computed the gradients
    that it timed."""

    last = ""

    def variant(self, name):
        self.last = name
        product = super().variant(name)
        for variable in self.kept:
            for copy in self._local(variable):
                copy.assign(tf.zeros_like(copy))
        return product

    def copies(self):
        wrong = [number for number, parts in enumerate(self._expected())
                 for variable, part in zip(self.kept, parts, strict=True)
                 if not np.allclose(self._local(variable)[number], part, rtol=1e-5, atol=1e-9)]
        raise Different(f"{len(self.kept)} arrays kept, {len(wrong)} wrong, after {self.last}")

    def _expected(self):
        """What each device ought to keep."""
        devices = self.task.devices
        if self.last == "A":
            return [[devices * self._local(variable)[0] for variable in self.gradients_held]] * devices
        with self._where():
            _, gradients = self.local_gradients(*self.batch(0))
        if self.last == "FBA":
            gradients = tf.function(
                lambda: self.strategy.run(self.aggregate, args=(gradients,)))()
        return map(parts_of, zip(*map(self._local, gradients), strict=True))


class Losses(Runner):
    """The same rows on every device. Says, when its copies are asked for, how many losses the last
    step had."""

    def feed(self, inputs, targets, residence):
        rows = np.tile(np.arange(self.task.batch), self.task.devices)
        super().feed(inputs[:, rows], targets[:, rows], residence)

    def copies(self):
        raise Different(f"{len({float(loss) for loss in self._local(self.last_loss)})} losses")


class SameUnits(Losses):
    """Keras's own random streams, the same on every device."""

    def _part_seeds(self):
        pass


class NamesItsLstm(Runner):
    """Refuses every network, saying which of Keras's LSTM paths it would take."""

    def __init__(self, task):
        super().__init__(task)
        lstms = [layer for layer in self.model.layers if hasattr(layer, "use_cudnn")]
        raise Different("use_cudnn " + ", ".join(sorted({str(layer.use_cudnn) for layer in lstms})))


class Stale(Runner):
    """Device 1 gets its old parameters back after each step; of several processes the last one."""

    def step(self):
        if self.task.rank < self.task.ranks - 1:
            super().step()
            return
        copies = [self._local(variable.value)[-1] for variable in self.variables.values()]
        before = [tf.identity(copy) for copy in copies]
        super().step()
        for copy, old in zip(copies, before, strict=True):
            copy.assign(old)
