"""The network's layers in PyTorch: modules by name, their parameters' names and their shapes."""

import torch
import torch.nn.functional as F
from torch import nn

from runners import protocol
from runners.pytorch import transformers

# Ours -> PyTorch's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "layer_norm": {"scale": "weight", "shift": "bias"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "weight_ih_l0", "weight_hidden": "weight_hh_l0", "bias": "bias_ih_l0"},
}


class Net(torch.fx.GraphModule):
    """The network's layers by name, and `forward` as somebody would write it, a line a layer.

    If `forward` were a loop, a layer that breaks the graph, as `nn.LSTM` does (torch 2.13), would
    leave all layers uncompiled. An output is freed after its last use. `torch.fx` gives each
    instance its own `forward`, so one that a subclass defines never runs.

    With `piece_bytes`, `torch.compile` compiles pieces whose gradients have so many bytes or more.
    """

    def __init__(self, network, piece_bytes=None):
        parts = nn.ModuleDict()
        shapes = {"input": network["input_shape"]}
        for layer in network["layers"]:
            name = layer["name"]
            parts[name] = make_layer(layer, shapes[layer["inputs"][0]])
            if "tied" in layer["attributes"]:
                parts[name].weight = parts[layer["attributes"]["tied"]].weight
            shapes[name] = layer["output_shape"]
        wiring = {layer["name"]: layer["inputs"] for layer in network["layers"]}
        starts = pieces(parts, piece_bytes) if piece_bytes else ()
        super().__init__({f"parts.{name}": part for name, part in parts.items()},
                         written(wiring, starts))
        self.parts, self.wiring = parts, wiring


def pieces(parts, least):
    """Name the parts that start a piece: one of `least` bytes of gradients or more, from the end.

    Backward computes the last part's gradients first. Those of shared weights, such as a tied
    head's, are complete at the first part that has them.
    """
    owner = {}
    for name, part in parts.items():
        for parameter in part.parameters():
            owner.setdefault(parameter, name)
    starts, ready = [], 0
    # Nothing comes before the first.
    for name in list(parts)[:0:-1]:
        ready += sum(parameter.nbytes for parameter, first in owner.items()
                     if first == name and parameter.requires_grad)
        if ready >= least:
            starts.append(name)
            ready = 0
    return starts


def written(wiring, starts=()):
    """Return the graph that calls parts in turn, of {part: its inputs, "input" or other parts}.

    `torch.compile` breaks its own graph before each of `starts`.
    """
    graph = torch.fx.Graph()
    values = {"input": graph.placeholder("x")}
    for name, inputs in wiring.items():
        if name in starts:
            graph.call_function(torch._dynamo.graph_break)
        values[name] = graph.call_module(f"parts.{name}", tuple(values[each] for each in inputs))
    graph.output(values[name])
    return graph


class OneBiasLSTM(nn.RNNBase):
    """cuDNN's cell adds two bias vectors; the second stays zero and untrained.

    It is not an `nn.LSTM`: `torch.compile` compiles nothing of a network that holds one (torch
    2.13), not even the product with 10,000 words.
    """

    def __init__(self, inputs, units):
        super().__init__("LSTM", inputs, units, batch_first=True)
        self.bias_hh_l0.requires_grad_(False).zero_()

    def forward(self, x):
        return recurrent(x, self._flat_weights, self.training)  # (B, T, F) -> (B, T, H)


@torch.compiler.disable
def recurrent(x, weights, training):
    """Call what `nn.LSTM.forward` calls, in the precision of autocast."""
    in_bf16 = (x.is_cuda and torch.is_autocast_enabled("cuda")
               and torch.get_autocast_dtype("cuda") == torch.bfloat16)
    # Autocast hands fp16 to cuDNN's cells (torch 2.11): cast here, and without it.
    kind = torch.bfloat16 if in_bf16 else x.dtype
    units = weights[1].shape[1]  # the hidden weights are (4 H, H)
    zero = x.new_zeros(1, x.shape[0], units, dtype=kind)  # (1, B, H)
    if not in_bf16:
        return torch._VF.lstm(x, (zero, zero), weights, True, 1, 0.0, training, False, True)[0]
    with torch.autocast("cuda", enabled=False):
        return torch._VF.lstm(x.bfloat16(), (zero, zero), [each.bfloat16() for each in weights],
                              True, 1, 0.0, training, False, True)[0]


class Function(nn.Module):
    """A function of tensors as a module; images are (B, C, H, W)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


# Operation -> module, from the attributes and the input's shape without the batch.
LAYERS = {
    "dense": lambda a, shape: nn.Linear(shape[-1], a["units"]),
    "conv2d": lambda a, shape: nn.Conv2d(shape[0], a["filters"], a["kernel"], a["stride"],
                                         a["padding"], groups=a["groups"], bias=a["bias"]),
    "max_pool": lambda a, shape: nn.MaxPool2d(a["kernel"], a["stride"], a["padding"],
                                              ceil_mode=a["ceil"]),
    "avg_pool": lambda a, shape: nn.AvgPool2d(a["kernel"], a["stride"]),
    "global_avg_pool": lambda a, shape: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "relu": lambda a, shape: nn.ReLU(),
    "sigmoid": lambda a, shape: nn.Sigmoid(),
    "dropout": lambda a, shape: nn.Dropout(a["rate"]),
    "batch_norm": lambda a, shape: nn.BatchNorm2d(
        shape[0], eps=a["epsilon"], momentum=1 - a["running"]),
    "flatten": lambda a, shape: nn.Flatten(),
    "embedding": lambda a, shape: nn.Embedding(a["vocabulary"], a["units"]),
    "lstm": lambda a, shape: OneBiasLSTM(shape[-1], a["units"]),
    # It divides alpha by the size itself.
    "lrn": lambda a, shape: nn.LocalResponseNorm(a["size"], a["alpha"], a["beta"]),
    "concat": lambda a, shape: Function(lambda *images: torch.cat(images, dim=1)),
    "add": lambda a, shape: Function(lambda left, right: left + right),
    "subsample": lambda a, shape: Function(lambda x: x[:, :, ::a["stride"], ::a["stride"]]),
    "pad_channels": lambda a, shape: Function(lambda x: F.pad(x, (0, 0, 0, 0, 0, a["extra"]))),
    **transformers.LAYERS,
}


def make_layer(layer, input_shape):
    return protocol.lowered(LAYERS, layer)(layer["attributes"], input_shape)


def trained_shapes(model, names):
    """Shapes of all that the optimiser trains, by our names or else by the module's own."""
    ours = {name: our for our, name in names.items()}
    return {ours.get(name, name): tuple(parameter.shape)
            for name, parameter in model.named_parameters() if parameter.requires_grad}


def output_shapes(model, network, device):
    """Shapes that the modules really give, without the batch, by hooks during a forward pass."""
    shapes = {}

    def watch(name):
        return lambda _part, _inputs, output: shapes.update({name: tuple(output.shape[1:])})

    hooks = [part.register_forward_hook(watch(name)) for name, part in model.parts.items()]
    with torch.no_grad():
        model(zeros(network, 2, device))
    for hook in hooks:
        hook.remove()
    return shapes


def zeros(network, batch, device):
    kind = torch.long if network["vocabulary"] else torch.float32
    return torch.zeros(batch, *network["input_shape"], dtype=kind, device=device)
