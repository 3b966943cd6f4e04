"""The layers of Transformers in CNTK 2.7, as `layers` has the others.

Tokens are a static axis, (T, F), because a product of two tensors needs their shapes. Python 3.5
syntax.
"""

import cntk as C
import numpy as np

# Added to the scores of tokens that a token may not read.
FAR = -1e30
# Of erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; off by 1.5e-7 at most.
ERF_SCALE = 0.3275911
ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def attention(a, shape):
    """Head by head, because CNTK's products have two axes."""
    width = shape[1] // (3 * a["heads"])
    attend = attending(a, shape[0], width)

    def apply(x):
        return attend(*(C.slice(x, -1, first, first + a["heads"] * width)
                        for first in range(0, shape[1], a["heads"] * width)))

    return apply


def attending(a, length, width):
    """Return a function of queries, keys and values (T, H D), whose heads may be fewer."""
    later = C.Constant(np.triu(np.full((length, length), FAR, np.float32), 1))
    shared = a["heads"] // a.get("groups", a["heads"])

    def apply(queries, keys, values):
        heads = []
        for head in range(a["heads"]):
            q, k, v = (C.slice(x, -1, number * width, (number + 1) * width)
                       for x, number in ((queries, head), (keys, head // shared),
                                         (values, head // shared)))
            scores = C.times(q, C.transpose(k, (1, 0))) * (width ** -0.5)  # (T, T)
            scores = scores + later if a["causal"] else scores
            heads.append(C.times(C.softmax(scores, axis=-1), v))
        return C.splice(*heads, axis=-1)

    return apply


def rotary(a, shape):
    """Head by head, because a slice has one axis."""
    length, features = shape
    half = features // (2 * a["heads"])
    angles = np.outer(np.arange(length), a["base"] ** (-np.arange(half) / half))
    cos, sin = (C.Constant(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles)))

    def apply(x):
        turned = []
        for first in range(0, features, 2 * half):
            left, right = (C.slice(x, -1, at, at + half) for at in (first, first + half))
            turned += [left * cos - right * sin, right * cos + left * sin]
        return C.splice(*turned, axis=-1)

    return apply


class RMSNorm:
    def __init__(self, a, width):
        self.epsilon = a["epsilon"]
        self.parameters = [C.Parameter((width,), name="scale")]

    def __call__(self, x):
        root = C.sqrt(C.reduce_mean(C.square(x), axis=-1) + self.epsilon)
        return C.element_divide(x, root) * self.parameters[0]


class LayerNorm:
    """CNTK's own normalises over all static axes together."""

    def __init__(self, a, width):
        self.epsilon = a["epsilon"]
        self.scale, self.shift = (C.Parameter((width,), name=name) for name in ("scale", "shift"))
        self.parameters = [self.scale, self.shift]

    def __call__(self, x):
        normal = x - C.reduce_mean(x, axis=-1)
        variance = C.reduce_mean(C.square(normal), axis=-1)
        normal = C.element_divide(normal, C.sqrt(variance + self.epsilon))
        return normal * self.scale + self.shift


class Positions:
    def __init__(self, shape):
        self.parameters = [C.Parameter(tuple(shape), name="weight")]

    def __call__(self, x):
        return x + self.parameters[0]


class ClassToken:
    def __init__(self, width):
        self.parameters = [C.Parameter((width,), name="weight")]

    def __call__(self, x):
        # A parameter has no axis of samples.
        first = C.slice(x, 0, 0, 1) * 0 + C.reshape(self.parameters[0], (1, -1))
        return C.splice(first, x, axis=0)  # (T, F) -> (1 + T, F)


def gelu(a, shape):
    root = (2 / np.pi) ** 0.5
    if a["tanh"]:
        return lambda x: 0.5 * x * (1 + C.tanh(root * (x + 0.044715 * x * x * x)))
    return lambda x: 0.5 * (x + C.abs(x) * erf_of_size(x))


def erf_of_size(x):
    """Return erf(|x| / sqrt 2), for which CNTK has no operator."""
    t = C.reciprocal(1 + ERF_SCALE * 0.5 ** 0.5 * C.abs(x))
    polynomial = 0.0
    for coefficient in reversed(ERF):
        polynomial = t * (coefficient + polynomial)
    return 1 - polynomial * C.exp(-0.5 * x * x)


def mean_loss(logits, targets):
    """Return the mean loss of logits (T, K) and targets (T).

    CNTK's own cross entropy mixes up the tokens.
    """
    chosen = C.reduce_sum(logits * C.one_hot(targets, logits.shape[-1]), axis=-1)
    return C.reduce_mean(C.reduce_log_sum_exp(logits, axis=-1) - chosen)


def tied_dense(table):
    return lambda x: C.times(x, C.transpose(table, (1, 0)))


# As `layers.LAYERS`; `layers.build` makes the tied head.
LAYERS = {
    "layer_norm": lambda a, shape: LayerNorm(a, shape[-1]),
    "gelu": gelu,
    "attention": attention,
    "positions": lambda a, shape: Positions(shape),
    "tokens": lambda a, shape: lambda x: C.transpose(C.reshape(x, (shape[0], -1)), (1, 0)),
    "class_token": lambda a, shape: ClassToken(shape[-1]),
    "first_token": lambda a, shape: lambda x: C.reshape(C.slice(x, 0, 0, 1), (-1,)),
    "linear": lambda a, shape: C.layers.Dense(a["units"], input_rank=1, bias=False),
    "rms_norm": lambda a, shape: RMSNorm(a, shape[-1]),
    "rotary": rotary,
    "grouped_attention": lambda a, shape: attending(a, shape[0], shape[1] // a["heads"]),
    "swiglu": lambda a, shape: lambda gate, value: gate * C.sigmoid(gate) * value,
}
