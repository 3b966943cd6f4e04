"""The network's layers in Gluon: its blocks by name, and their parameters. Python 3.6 syntax."""

from mxnet import gluon
from mxnet.gluon import nn, rnn

from runners import protocol
from runners.mxnet import transformers

# Ours -> Gluon's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "gamma", "shift": "beta"},
    "layer_norm": {"scale": "gamma", "shift": "beta"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "l0_i2h_weight", "weight_hidden": "l0_h2h_weight",
             "bias": "l0_i2h_bias"},
}


class Net(gluon.HybridBlock):
    """The network's layers by name, run in their order."""

    def __init__(self, task, layout):
        super().__init__(prefix="")
        self.layers = task.network["layers"]
        self.parts = {}
        shapes = {"input": task.network["input_shape"]}
        for layer in self.layers:
            shape, tied = shapes[layer["inputs"][0]], layer["attributes"].get("tied")
            part = (transformers.tied_dense(layer["attributes"], shape, self.parts[tied]) if tied
                    else make_layer(layer, shape, layout))
            self.parts[layer["name"]] = part
            self.register_child(part, layer["name"])
            shapes[layer["name"]] = layer["output_shape"]

    def hybrid_forward(self, F, x):
        return self.outputs(x)[self.layers[-1]["name"]]

    def outputs(self, x):
        outputs = {"input": x}
        for layer in self.layers:
            inputs = [outputs[name] for name in layer["inputs"]]
            outputs[layer["name"]] = self.parts[layer["name"]](*inputs)
        return outputs


def chain(*blocks):
    sequence = nn.HybridSequential()
    sequence.add(*blocks)
    return sequence


def one_bias_lstm(lstm):
    """cuDNN's cell adds two bias vectors; the second stays zero and untrained."""
    lstm.l0_h2h_bias.grad_req = "null"
    return lstm


def pad_channels(input_shape, extra):
    """F.pad leaves the first two axes alone, so C becomes the third for it."""
    channels, height, width = input_shape
    margin = (0, 0, 0, 0, 0, extra, 0, 0)

    def pad(F, x):
        x = x.reshape((0, 1, channels, height * width))  # (B, C, H, W) -> (B, 1, C, H W)
        padded = F.pad(x, mode="constant", pad_width=margin)
        return padded.reshape((0, channels + extra, height, width))

    return nn.HybridLambda(pad)


def subsample(stride):
    step = (None, None, stride, stride)
    return nn.HybridLambda(
        lambda F, x: F.slice(x, begin=(None,) * 4, end=(None,) * 4, step=step))


# Operation -> block, from the attributes, the input's shape and a prefix of names.
# Images are (B, C, H, W).
LAYERS = {
    "dense": lambda a, shape, prefix: nn.Dense(
        a["units"], flatten=False, in_units=shape[-1], prefix=prefix),
    "conv2d": lambda a, shape, prefix: nn.Conv2D(
        a["filters"], a["kernel"], a["stride"], a["padding"], groups=a["groups"],
        use_bias=a["bias"], in_channels=shape[0], prefix=prefix),
    "max_pool": lambda a, shape, prefix: nn.MaxPool2D(
        a["kernel"], a["stride"], a["padding"], ceil_mode=a["ceil"]),
    "avg_pool": lambda a, shape, prefix: nn.AvgPool2D(a["kernel"], a["stride"]),
    "global_avg_pool": lambda a, shape, prefix: chain(nn.GlobalAvgPool2D(), nn.Flatten()),
    "relu": lambda a, shape, prefix: nn.Activation("relu"),
    "sigmoid": lambda a, shape, prefix: nn.Activation("sigmoid"),
    "dropout": lambda a, shape, prefix: nn.Dropout(a["rate"]),
    "batch_norm": lambda a, shape, prefix: nn.BatchNorm(
        momentum=a["running"], epsilon=a["epsilon"], in_channels=shape[0], prefix=prefix),
    "flatten": lambda a, shape, prefix: nn.Flatten(),
    "embedding": lambda a, shape, prefix: nn.Embedding(a["vocabulary"], a["units"], prefix=prefix),
    "lrn": lambda a, shape, prefix: nn.HybridLambda(
        lambda F, x: F.LRN(x, alpha=a["alpha"], beta=a["beta"], knorm=1, nsize=a["size"])),
    "concat": lambda a, shape, prefix: nn.HybridLambda(
        lambda F, *images: F.concat(*images, dim=1)),
    "add": lambda a, shape, prefix: nn.HybridLambda(lambda F, left, right: left + right),
    "subsample": lambda a, shape, prefix: subsample(a["stride"]),
    "pad_channels": lambda a, shape, prefix: pad_channels(shape, a["extra"]),
    **transformers.LAYERS,
}


def make_layer(layer, input_shape, layout):
    a, prefix = layer["attributes"], layer["name"] + "_"
    if layer["op"] == "lstm":
        return one_bias_lstm(rnn.LSTM(a["units"], layout=layout, input_size=input_shape[-1],
                                      prefix=prefix))
    return protocol.lowered(LAYERS, layer)(a, input_shape, prefix)


def trained_parameters(net, network):
    """All that the trainer trains, by our full names or else by Gluon's own."""
    paths = protocol.native_paths(network, PARAMETER_NAMES)
    ours = {getattr(net.parts[layer], theirs).name: name
            for name, (layer, theirs) in paths.items()}
    return {ours.get(parameter.name, parameter.name): parameter
            for parameter in net.collect_params().values() if parameter.grad_req != "null"}
