"""The vocabulary of a network: `Layer` and `Network`, immutable, and their JSON form.

Shapes never include the batch. Canonical layouts: activations C H W, dense weights [out, in],
convolution weights [out, in, kh, kw], LSTM gates in order i f g o with one bias vector.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One operation: the layers that it reads, what it makes, and the shapes of what it trains."""

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: dict[str, Any]
    output_shape: Shape
    parameters: dict[str, Shape] = field(default_factory=dict)

    @property
    def parameter_count(self) -> int:
        return sum(math.prod(shape) for shape in self.parameters.values())


@dataclass(frozen=True)
class Network:
    """A network, trained with mean softmax cross-entropy of its last layer's output."""

    name: str
    title: str
    # The real set that feeds it, or "synthetic".
    data_set: str
    # Per device, as the source article sweeps them.
    batches: tuple[int, ...]
    learning_rate: float
    momentum: float
    # (784,) or (3, 32, 32) of float32, or (32,) of word numbers.
    input_shape: Shape
    # The number of words where the input is words, else 0.
    vocabulary: int
    classes: int
    layers: tuple[Layer, ...]

    @property
    def parameter_count(self) -> int:
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def parameter_shapes(self) -> dict[str, Shape]:
        """Shape of every trained tensor by its full name, `layer.parameter`, in order."""
        return {f"{layer.name}.{name}": shape
                for layer in self.layers for name, shape in layer.parameters.items()}

    @property
    def state_shapes(self) -> dict[str, Shape]:
        """Shapes as in `parameter_shapes`, and those of batch norms' running statistics."""
        running = {f"{layer.name}.{name}": layer.parameters["scale"] for layer in self.layers
                   if layer.op == "batch_norm" for name in ("mean", "variance")}
        return {**self.parameter_shapes, **running}

    @property
    def target_shape(self) -> Shape:
        """() for one label a sample, (T,) for one label a word."""
        return self.layers[-1].output_shape[:-1]

    @property
    def has_dropout(self) -> bool:
        return any(layer.op == "dropout" for layer in self.layers)

    @property
    def has_batch_norm(self) -> bool:
        return any(layer.op == "batch_norm" for layer in self.layers)

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)

    def shape_of(self, name: str) -> Shape:
        return self.input_shape if name == "input" else self.layer(name).output_shape

    def to_json(self) -> dict[str, Any]:
        """The form that workers read: plain lists, numbers and strings."""
        form = {**asdict(self), "target_shape": self.target_shape,
                "parameter_count": self.parameter_count}
        # Tuples become lists, as on the wire.
        return dict(json.loads(json.dumps(form)))
