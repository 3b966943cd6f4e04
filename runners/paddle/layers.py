"""The network's layers in Paddle: its own by name, their parameters' names and their shapes."""

import paddle
from paddle import nn

from runners import protocol
from runners.paddle import transformers

# Ours -> Paddle's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "layer_norm": {"scale": "weight", "shift": "bias"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "weight_ih_l0", "weight_hidden": "weight_hh_l0", "bias": "bias_ih_l0"},
}


class Net(nn.Layer):
    """The network's layers by name, run in their order."""

    def __init__(self, network):
        super().__init__()
        self.layers = network["layers"]
        self.parts = nn.LayerDict()
        shapes = {"input": network["input_shape"]}
        for layer in self.layers:
            self.parts[layer["name"]] = make_layer(layer, shapes[layer["inputs"][0]])
            if "tied" in layer["attributes"]:
                table = self.parts[layer["attributes"]["tied"]]
                self.parts[layer["name"]].weight = table.weight
            shapes[layer["name"]] = layer["output_shape"]

    def forward(self, x):
        outputs = {"input": x}
        for layer in self.layers:
            inputs = [outputs[name] for name in layer["inputs"]]
            outputs[layer["name"]] = self.parts[layer["name"]](*inputs)
        return outputs[self.layers[-1]["name"]]


class OneBiasLSTM(nn.LSTM):
    """Paddle's cell adds two bias vectors; the second stays zero and untrained.

    It has a gradient all the same (`trained` leaves it out): with `stop_gradient` the backward pass
    of Paddle 3.3.1 dies ("Required tensor shall not be nullptr"), and without the bias Paddle
    leaves its LSTM kernel for a loop in Python.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.bias_hh_l0.set_value(paddle.zeros_like(self.bias_hh_l0))

    def forward(self, x):
        return super().forward(x)[0]  # (B, T, F) -> (B, T, H)


class Concat(nn.Layer):
    def forward(self, *images):
        return paddle.concat(images, axis=1)  # (B, C, H, W) each


class Add(nn.Layer):
    def forward(self, left, right):
        return left + right


class Subsample(nn.Layer):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return x[:, :, :: self.stride, :: self.stride]  # (B, C, H, W)


class PadChannels(nn.Layer):
    def __init__(self, extra):
        super().__init__()
        self.extra = extra

    def forward(self, x):
        return nn.functional.pad(x, [0, 0, 0, self.extra, 0, 0, 0, 0])


# Operation -> layer, from the attributes and the input's shape without the batch.
LAYERS = {
    "dense": lambda a, shape: nn.Linear(shape[-1], a["units"]),
    # Paddle's default attribute, None, is a bias.
    "conv2d": lambda a, shape: nn.Conv2D(
        shape[0], a["filters"], a["kernel"], a["stride"], a["padding"], groups=a["groups"],
        bias_attr=None if a["bias"] else False),
    "max_pool": lambda a, shape: nn.MaxPool2D(a["kernel"], a["stride"], a["padding"],
                                              ceil_mode=a["ceil"]),
    "avg_pool": lambda a, shape: nn.AvgPool2D(a["kernel"], a["stride"]),
    "global_avg_pool": lambda a, shape: nn.Sequential(nn.AdaptiveAvgPool2D(1), nn.Flatten()),
    "relu": lambda a, shape: nn.ReLU(),
    "sigmoid": lambda a, shape: nn.Sigmoid(),
    "dropout": lambda a, shape: nn.Dropout(a["rate"]),
    "batch_norm": lambda a, shape: nn.BatchNorm2D(
        shape[0], momentum=a["running"], epsilon=a["epsilon"]),
    "flatten": lambda a, shape: nn.Flatten(),
    "embedding": lambda a, shape: nn.Embedding(a["vocabulary"], a["units"]),
    "lstm": lambda a, shape: OneBiasLSTM(shape[-1], a["units"]),
    # It divides alpha by the size itself.
    "lrn": lambda a, shape: nn.LocalResponseNorm(a["size"], a["alpha"], a["beta"]),
    "concat": lambda a, shape: Concat(),
    "add": lambda a, shape: Add(),
    "subsample": lambda a, shape: Subsample(a["stride"]),
    "pad_channels": lambda a, shape: PadChannels(a["extra"]),
    **transformers.LAYERS,
}


def make_layer(layer, input_shape):
    return protocol.lowered(LAYERS, layer)(layer["attributes"], input_shape)


def trained(model):
    """The parameters that the optimiser trains, by the model's own names."""
    return {name: parameter for name, parameter in model.named_parameters()
            if not parameter.stop_gradient and not name.endswith("bias_hh_l0")}


def output_shapes(model, network):
    """Shapes that the layers really give, without the batch, by hooks during a forward pass."""
    shapes = {}

    def watch(name):
        return lambda _part, _inputs, output: shapes.update({name: tuple(output.shape[1:])})

    hooks = [part.register_forward_post_hook(watch(name)) for name, part in model.parts.items()]
    kind = "int64" if network["vocabulary"] else "float32"
    with paddle.no_grad():
        model(paddle.zeros([2, *network["input_shape"]], kind))
    for hook in hooks:
        hook.remove()
    return shapes
