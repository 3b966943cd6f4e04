"""What one proof compares: a question, how the worker was told to train, and what may differ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import networks
from analysis.strategies import table as strategies
from harness.data import arrays
from harness.proof.limits import Allowed, Limits, LimitsOf
from harness.proof.questions import PLAIN, ZERO, Answer, Question, Questions, head_of

# A number must be right to 1 % if only stored weights and a gradient's last sum are rounded in it.
EXACT = 0.01
SIGMAS = 6.0  # of what rounding of stored weights makes of a number
STORED_UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # unit roundoff where activations are stored so


class Begin(NamedTuple):
    """How a proof begins: its first draw, the seed of the rows' order, and the batch.

    `turned`, each play begins one batch later: a fault of every second batch shows in one of two
    proofs.
    """

    draw: int = 0
    order: int = 0
    turned: bool = False


FIRST = Begin()


@dataclass(frozen=True)
class Case:
    """A question to a worker that builds its network under `task` at `batch` samples a device."""

    question: Question
    questions: Questions
    limits_of: LimitsOf
    task: Mapping[str, Any]
    batch: int
    begin: Begin = FIRST

    @property
    def network(self) -> networks.Network:
        return self.question.network

    @property
    def strategy(self) -> str:
        return str(self.task.get("strategy", ""))

    @property
    def precision(self) -> str:
        return "bf16" if self.strategy == "bf16_compress" else str(self.task["precision"])

    @property
    def keeps_only_sums(self) -> bool:
        """Whether the strategy may move each weight as it likes, as 1-bit SGD does."""
        return strategies.of(self.strategy).keeps_only_sums

    @property
    def repeats(self) -> int:
        """How often the timed batch repeats its samples."""
        return self.batch // self.question.samples

    @cached_property
    def parts(self) -> list[tuple[str, str, slice]]:
        return parts_of(self.network)

    @cached_property
    def _answers(self) -> dict[tuple[str, int], tuple[float, Answer]]:
        return {}

    @property
    def sizes(self) -> dict[str, int]:
        """The parameters of each part."""
        shapes = self.network.parameter_shapes
        return {part: math.prod(shapes[name][1:]) * (rows.stop - rows.start)
                for part, name, rows in self.parts}

    def trained_from(self, kind: str) -> list[str]:
        """Name the tensors that train from the weights of a kind: from zero only the last bias."""
        head = head_of(self.network)
        if kind == ZERO and head:
            return [f"{head.name}.bias"]
        return list(self.network.parameter_shapes)

    def start(self, kind: str) -> Mapping[str, Any]:
        """Return the weights that a play begins with."""
        return arrays.mapped(self.question.file(kind))

    def answer(self, kind: str, steps: int = 1) -> tuple[float, Answer]:
        """Return the reference's loss and arrays, which are mapped once. Raises Failed."""
        if (kind, steps) not in self._answers:
            self._answers[kind, steps] = self.questions.answer(self.question, kind, steps)
        return self._answers[kind, steps]

    def limits(self, kind: str) -> Limits:
        return self.limits_of.of(self.question, kind, self.precision)

    def limit_of(self, tensor: str) -> Allowed:
        """Return the widest limits of a tensor's parts."""
        limits = self.limits(PLAIN).tensors
        ours = [limits[part] for part, name, _ in self.parts if name == tensor]
        return Allowed(*(max(getattr(each, key) for each in ours)
                         for key in ("coefficient", "norm", "distance")))

    def summed(self, name: str) -> float:
        """Return what sums in bf16 or fp16 may be off, as that of a bias's gradient over all rows.

        n rounded additions are off by a multiple of sqrt(n) u (Higham and Mary 2019, A new approach
        to probabilistic rounding error analysis). TensorFlow's sum of 64 rows was 4 % off, JAX's
        sum of an embedding's rows 3 %.
        """
        layer, parameter = name.split(".")[:2]
        if self.precision not in STORED_UNITS:
            return 0.0
        shape = self.network.layer(layer).output_shape
        if self.network.layer(layer).op in ("embedding", "positions", "class_token"):
            rows = self.batch
        elif parameter in ("bias", "scale", "shift"):
            rows = self.batch * math.prod(shape[1:] if len(shape) == 3 else shape[:-1])
        else:
            return 0.0
        return 2 * STORED_UNITS[self.precision] * math.sqrt(rows)


def parts_of(network: networks.Network) -> list[tuple[str, str, slice]]:
    """List the parts that are compared one by one: tensors, and the gates of LSTMs.

    An entry is its name, its tensor's and its rows: ("lstm1.bias.f", "lstm1.bias", 256 to 512).
    """
    found = []
    for layer in network.layers:
        gates = "ifgo" if layer.op == "lstm" else ""
        for parameter, shape in layer.parameters.items():
            name, rows = f"{layer.name}.{parameter}", shape[0] // max(1, len(gates))
            found += [(f"{name}.{gate}", name, slice(number * rows, (number + 1) * rows))
                      for number, gate in enumerate(gates)] or [(name, name, slice(0, rows))]
    return found
