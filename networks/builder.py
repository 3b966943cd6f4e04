"""Writes a network down, layer by layer, and infers every shape on the way.

Each method adds one layer behind `after` (by default the last layer) and returns its name. A layer
that does not fit its input raises `ValueError` with the layer's name.
"""

from collections.abc import Sequence
from typing import Any

from networks.description import Layer, Shape


class Builder:
    def __init__(self, input_shape: Shape, vocabulary: int = 0):
        self.input_shape = input_shape
        self.vocabulary = vocabulary
        self.layers: list[Layer] = []
        self.shapes: dict[str, Shape] = {"input": input_shape}
        self.last = "input"

    def dense(self, units: int, after: str | None = None) -> str:
        """y = x W^T + b on the last axis; W is [units, features]."""
        *leading, features = self._shape(after)
        if len(leading) == 2:
            raise ValueError(f"dense after {after or self.last}: needs F or T F, has "
                             f"{self._shape(after)}; flatten the image first")
        parameters: dict[str, Shape] = {"weight": (units, features), "bias": (units,)}
        return self._add("dense", [after], (*leading, units), {"units": units}, parameters)

    def conv(self, filters: int, kernel: int, stride: int = 1, padding: int = 0,
             bias: bool = True, groups: int = 1, after: str | None = None) -> str:
        """Cross-correlation with square kernels, zero padding on both sides alike.

        W is [filters, C / groups, kernel, kernel]. Channels and filters are divided into `groups`
        equal parts; each part of the filters reads the same part of the channels.
        """
        channels, height, width = self._image(after, "conv2d")
        if groups < 1 or channels % groups or filters % groups:
            raise ValueError(f"conv2d after {after or self.last}: {groups} groups for {channels} "
                             f"channels and {filters} filters")
        shape = (filters, *(_window(size, kernel, stride, padding) for size in (height, width)))
        parameters: dict[str, Shape] = {"weight": (filters, channels // groups, kernel, kernel)}
        if bias:
            parameters["bias"] = (filters,)
        attributes = {"filters": filters, "kernel": kernel, "stride": stride, "padding": padding,
                      "bias": bias, "groups": groups}
        return self._add("conv2d", [after], shape, attributes, parameters)

    def max_pool(self, kernel: int, stride: int, padding: int = 0, ceil: bool = False,
                 after: str | None = None) -> str:
        """Largest of each window; pads with minus infinity, rounds down.

        With `ceil` it rounds up: it keeps a last window that ends beyond the image, as Caffe does.
        """
        channels, height, width = self._image(after, "max_pool")
        fit = _window_or_part if ceil else _window
        shape = (channels, *(fit(size, kernel, stride, padding) for size in (height, width)))
        attributes = {"kernel": kernel, "stride": stride, "padding": padding, "ceil": ceil}
        return self._add("max_pool", [after], shape, attributes)

    def avg_pool(self, kernel: int, stride: int, after: str | None = None) -> str:
        """Mean of each window; drops windows that do not fit whole (rounds down)."""
        channels, height, width = self._image(after, "avg_pool")
        shape = (channels, _window(height, kernel, stride, 0), _window(width, kernel, stride, 0))
        attributes = {"kernel": kernel, "stride": stride, "padding": 0}
        return self._add("avg_pool", [after], shape, attributes)

    def global_avg_pool(self, after: str | None = None) -> str:
        channels, _, _ = self._image(after, "global_avg_pool")
        return self._add("global_avg_pool", [after], (channels,))

    def relu(self, after: str | None = None) -> str:
        return self._add("relu", [after], self._shape(after))

    def sigmoid(self, after: str | None = None) -> str:
        return self._add("sigmoid", [after], self._shape(after))

    def dropout(self, rate: float, after: str | None = None) -> str:
        """Zero each value with probability `rate` and scale the others by 1 / (1 - rate)."""
        return self._add("dropout", [after], self._shape(after), {"rate": rate})

    def batch_norm(self, after: str | None = None) -> str:
        """Normalise each channel by the batch's mean and biased variance, then scale and shift.

        Its running mean and variance start at 0 and 1. Each step makes a running value r into
        running * r + (1 - running) * (the batch's value).
        """
        shape = self._image(after, "batch_norm")
        parameters: dict[str, Shape] = {"scale": shape[:1], "shift": shape[:1]}
        attributes = {"epsilon": 1e-5, "running": 0.9}
        return self._add("batch_norm", [after], shape, attributes, parameters)

    def lrn(self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75,
            after: str | None = None) -> str:
        """y = x / (1 + alpha / size * S)^beta, S the sum of squares over `size` channels.

        This is Caffe's form of Krizhevsky et al. (2012): alpha is divided by the size, and the
        constant is 1 instead of 2. Beyond the channels lie zeros.
        """
        if size % 2 == 0:
            raise ValueError(f"lrn after {after or self.last}: {size} channels have none in their "
                             "middle")
        attributes = {"size": size, "alpha": alpha, "beta": beta}
        return self._add("lrn", [after], self._image(after, "lrn"), attributes)

    def concat(self, sources: Sequence[str]) -> str:
        """Concatenate the channels of images."""
        images = [self._image(source, "concat") for source in sources]
        if len({image[1:] for image in images}) != 1:
            pairs = zip(sources, images, strict=True)
            found = ", ".join(f"{name} {image}" for name, image in pairs)
            raise ValueError(f"concat: {found} differ in size")
        channels = sum(image[0] for image in images)
        return self._add("concat", list(sources), (channels, *images[0][1:]))

    def add(self, left: str, right: str) -> str:
        return self._add("add", [left, right], self._common_shape("add", left, right))

    def flatten(self, after: str | None = None) -> str:
        channels, height, width = self._image(after, "flatten")
        return self._add("flatten", [after], (channels * height * width,))

    def subsample(self, stride: int, after: str | None = None) -> str:
        """Keep rows and columns 0, stride, 2 stride ... (a 1x1 pooling)."""
        channels, height, width = self._image(after, "subsample")
        shape = (channels, _window(height, 1, stride, 0), _window(width, 1, stride, 0))
        return self._add("subsample", [after], shape, {"stride": stride})

    def pad_channels(self, extra: int, after: str | None = None) -> str:
        """Append `extra` channels of zeros (shortcut A of He et al., arXiv 1512.03385)."""
        channels, *size = self._image(after, "pad_channels")
        if extra < 1:
            raise ValueError(f"pad_channels after {after or self.last}: {extra} extra channels; "
                             "at least one is needed")
        return self._add("pad_channels", [after], (channels + extra, *size), {"extra": extra})

    def embedding(self, units: int, after: str | None = None) -> str:
        """Row of a [vocabulary, units] table for each word number."""
        if not self.vocabulary:
            raise ValueError("embedding: the network's input is not words (vocabulary is 0)")
        shape = (*self._shape(after), units)
        attributes = {"vocabulary": self.vocabulary, "units": units}
        weight: Shape = (self.vocabulary, units)
        return self._add("embedding", [after], shape, attributes, {"weight": weight})

    def lstm(self, units: int, after: str | None = None) -> str:
        """LSTM without peepholes, (T, F) -> (T, units): gates i f g o, one bias vector.

        Its state is zero at the start.
        """
        length, features = self._tokens(after, "lstm")
        parameters: dict[str, Shape] = {"weight_input": (4 * units, features),
                                        "weight_hidden": (4 * units, units), "bias": (4 * units,)}
        return self._add("lstm", [after], (length, units), {"units": units}, parameters)

    def layer_norm(self, epsilon: float, after: str | None = None) -> str:
        """Normalise each row of features by its mean and biased variance, then scale and shift."""
        shape = self._tokens(after, "layer_norm")
        parameters: dict[str, Shape] = {"scale": shape[1:], "shift": shape[1:]}
        return self._add("layer_norm", [after], shape, {"epsilon": epsilon}, parameters)

    def gelu(self, tanh: bool, after: str | None = None) -> str:
        """y = x / 2 (1 + erf(x / sqrt 2)), or with `tanh` (arXiv 1606.08415)
        y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
        """
        return self._add("gelu", [after], self._shape(after), {"tanh": tanh})

    def attention(self, heads: int, causal: bool, after: str | None = None) -> str:
        """softmax(Q K^T / sqrt D) V of each head, (T, 3 H D) -> (T, H D), no parameters.

        The features are Q, K and V, each of H heads of D. With `causal` token t reads 0 to t.
        """
        length, features = self._tokens(after, "attention")
        if heads < 1 or features % (3 * heads):
            raise ValueError(f"attention after {after or self.last}: {features} features are not "
                             f"queries, keys and values of {heads} heads")
        attributes = {"heads": heads, "causal": causal}
        return self._add("attention", [after], (length, features // 3), attributes)

    def linear(self, units: int, after: str | None = None) -> str:
        """y = x W^T: a dense layer without a bias."""
        length, features = self._tokens(after, "linear")
        return self._add("linear", [after], (length, units), {"units": units},
                         {"weight": (units, features)})

    def rms_norm(self, epsilon: float, after: str | None = None) -> str:
        """Divide each row by sqrt(its mean square + epsilon), then scale (arXiv 1910.07467)."""
        shape = self._tokens(after, "rms_norm")
        return self._add("rms_norm", [after], shape, {"epsilon": epsilon}, {"scale": shape[1:]})

    def rotary(self, heads: int, base: float = 10000.0, after: str | None = None) -> str:
        """Turn features i and i + D/2 of each head by t base^(-2 i / D) at token t, from t = 0.

        RoFormer (arXiv 2104.09864), with the pairs of GPT-NeoX and of Llama in Transformers.
        """
        shape = self._tokens(after, "rotary")
        if heads < 1 or shape[1] % (2 * heads):
            raise ValueError(f"rotary after {after or self.last}: {shape[1]} features are not "
                             f"pairs of {heads} heads")
        return self._add("rotary", [after], shape, {"heads": heads, "base": base})

    def grouped_attention(self, heads: int, queries: str, keys: str, values: str) -> str:
        """softmax(Q K^T / sqrt D) V, causal; G heads of keys and values serve H of queries.

        (T, H D), (T, G D), (T, G D) -> (T, H D); head h reads head h // (H / G) (arXiv 2305.13245).
        """
        shapes = [self._tokens(each, "grouped_attention") for each in (queries, keys, values)]
        (length, features), few, same = shapes
        width = features // heads
        groups = few[1] // max(width, 1)
        if few != same or (length, groups * width, heads * width) != (*few, features) \
                or not groups or heads % groups:
            raise ValueError(f"grouped_attention after {queries}: {shapes} are not queries, keys "
                             f"and values of {heads} heads")
        attributes = {"heads": heads, "groups": groups, "causal": True}
        return self._add("grouped_attention", [queries, keys, values], shapes[0], attributes)

    def swiglu(self, gate: str, value: str) -> str:
        """gate sigmoid(gate) value (arXiv 2002.05202)."""
        return self._add("swiglu", [gate, value], self._common_shape("swiglu", gate, value))

    def positions(self, after: str | None = None) -> str:
        """Add a trained table of (T, F) to every sample."""
        shape = self._tokens(after, "positions")
        return self._add("positions", [after], shape, {}, {"weight": shape})

    def tokens(self, after: str | None = None) -> str:
        """Let the pixels of an image be tokens, row by row: (C, H, W) -> (H W, C)."""
        channels, height, width = self._image(after, "tokens")
        return self._add("tokens", [after], (height * width, channels))

    def class_token(self, after: str | None = None) -> str:
        """Put one trained token before the others: (T, F) -> (1 + T, F)."""
        length, features = self._tokens(after, "class_token")
        return self._add("class_token", [after], (1 + length, features), {},
                         {"weight": (features,)})

    def first_token(self, after: str | None = None) -> str:
        """Keep the first token alone: (T, F) -> (F)."""
        return self._add("first_token", [after], self._tokens(after, "first_token")[1:])

    def tied_dense(self, table: str, after: str | None = None) -> str:
        """y = x W^T with the table W of an embedding, which is trained by both of its uses."""
        length, features = self._tokens(after, "tied_dense")
        owner = next((layer for layer in self.layers if layer.name == table), None)
        if owner is None or owner.op != "embedding" or owner.output_shape[-1] != features:
            raise ValueError(f"tied_dense after {after or self.last}: {table} is no embedding "
                             f"of {features} features")
        units = owner.attributes["vocabulary"]
        return self._add("tied_dense", [after], (length, units), {"units": units, "tied": table})

    def _shape(self, after: str | None) -> Shape:
        if (after or self.last) not in self.shapes:
            raise ValueError(f"there is no layer {after} to go on from; so far: "
                             f"{', '.join(self.shapes)}")
        return self.shapes[after or self.last]

    def _common_shape(self, op: str, left: str, right: str) -> Shape:
        one, other = self._shape(left), self._shape(right)
        if one != other:
            raise ValueError(f"{op}: {left} {one} and {right} {other} differ in shape")
        return one

    def _image(self, after: str | None, op: str) -> Shape:
        shape = self._shape(after)
        if len(shape) != 3:
            raise ValueError(f"{op} after {after or self.last}: needs C H W, has {shape}")
        return shape

    def _tokens(self, after: str | None, op: str) -> Shape:
        shape = self._shape(after)
        if len(shape) != 2:
            raise ValueError(f"{op} after {after or self.last}: needs T F, has {shape}")
        return shape

    def _add(self, op: str, inputs: Sequence[str | None], shape: Shape,
             attributes: dict[str, Any] | None = None,
             parameters: dict[str, Shape] | None = None) -> str:
        name = f"{op}{1 + sum(layer.op == op for layer in self.layers)}"
        if min(shape) < 1:
            raise ValueError(f"{name}: output shape {shape} is empty")
        sources = tuple(source or self.last for source in inputs)
        self.layers.append(Layer(name, op, sources, attributes or {}, shape, parameters or {}))
        self.shapes[name] = shape
        self.last = name
        return name


def _window(size: int, kernel: int, stride: int, padding: int) -> int:
    """Number of whole windows along one axis: rounds down."""
    if kernel < 1 or stride < 1 or padding < 0:
        raise ValueError(f"a window of kernel {kernel}, stride {stride} and padding {padding} does "
                         "not exist")
    return (size + 2 * padding - kernel) // stride + 1


def _window_or_part(size: int, kernel: int, stride: int, padding: int) -> int:
    """Number of windows along one axis when the last may end beyond it: rounds up."""
    whole = _window(size, kernel, stride, padding)
    count = whole + ((size + 2 * padding - kernel) % stride > 0)
    if (count - 1) * stride >= size + padding:
        raise ValueError(f"of windows of kernel {kernel}, stride {stride} and padding {padding} "
                         "the last begins beyond the image")
    return count
