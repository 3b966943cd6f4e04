"""MLX on a Linux CPU: its documentation's `nn.value_and_grad`, `optimizer.update` and `mx.eval`.

`compiled` puts `mx.compile` around the step, with the state as its inputs and outputs. MLX is lazy:
each step ends by evaluating the parameters, the optimiser's state and the loss, as in its examples.
"""

import importlib.metadata
from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten

from runners import protocol
from runners.mlx.layers import Net

TIERS = {
    "stock": [],
    "compiled": ["mx.compile"],
    "tuned": ["mx.compile"],
    "uncompiled": "MLX's stock is not compiled",
}
# Ours -> MLX's, where they differ.
PARAMETER_NAMES = {
    "batch_norm": {"scale": "weight", "shift": "bias"},
    "layer_norm": {"scale": "weight", "shift": "bias"},
    "rms_norm": {"scale": "weight"},
    "lstm": {"weight_input": "Wx", "weight_hidden": "Wh"},
}


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        return {"release": importlib.metadata.version("mlx"),
                "device_name": protocol.processor_name(),
                "libraries": {"device": str(mx.default_device())}}

    def __init__(self, task):
        protocol.refuse_all_but_fp32_on_a_cpu(
            task, "MLX", "this runner has not been tried with MLX's CUDA build")
        self.settings = protocol.settings_of(task, TIERS)
        self.network = task.network
        mx.random.seed(task.seed)
        self.model = Net(task.network)
        self.model.train()
        self.ops = {layer["name"]: layer["op"] for layer in task.network["layers"]}
        self.paths = protocol.native_paths(task.network, PARAMETER_NAMES)
        ours = {f"{layer}.{theirs}": name for name, (layer, theirs) in self.paths.items()}
        shapes = {ours.get(name, name): canonical(np.array(array)).shape
                  for name, array in tree_flatten(self.model.trainable_parameters())}
        protocol.assert_network(task.network, self._output_shapes(), shapes)
        self._start()

    def load(self, weights):
        for name, array in weights.items():
            if array.ndim == 4:
                array = array.transpose(0, 2, 3, 1)  # (O, I, H, W) -> (O, H, W, I)
            layer, theirs = self.paths[name]
            getattr(self.model, layer)[theirs] = mx.array(np.ascontiguousarray(array))
        for norm in self._batch_norms().values():
            norm.running_mean = mx.zeros(norm.running_mean.shape)
            norm.running_var = mx.ones(norm.running_var.shape)
        self._start()

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        self.ring = list(zip(np.ascontiguousarray(inputs), targets, strict=True))
        if residence == "device":
            self.ring = [[mx.array(each) for each in batch] for batch in self.ring]
            mx.eval(self.ring)
        self.position = 0

    def step(self):
        batch = self.next_batch()
        self.last_loss = self.train(*(each if isinstance(each, mx.array) else mx.array(each)
                                      for each in batch))
        mx.eval(self.model.state, self.optimizer.state, self.last_loss)

    # `mx.eval` has waited.
    synchronize = staticmethod(protocol.nothing)

    def loss(self):
        return self.last_loss.item()

    def parameters(self):
        return {name: canonical(np.array(getattr(self.model, layer)[theirs]))
                for name, (layer, theirs) in self.paths.items()}

    def statistics(self):
        return {f"{name}.{kind}": np.array(array)
                for name, norm in self._batch_norms().items()
                for kind, array in (("mean", norm.running_mean), ("variance", norm.running_var))}

    def _start(self):
        """Make a new optimiser, without momentum, and the step around it."""
        model = self.model
        optimizer = optim.SGD(self.network["learning_rate"], self.network["momentum"])
        optimizer.init(model.trainable_parameters())

        def mean_loss(model, inputs, targets):
            logits = model(inputs)  # (B, K) or (B, T, K)
            return nn.losses.cross_entropy(logits, targets, reduction="mean")

        loss_and_gradients = nn.value_and_grad(model, mean_loss)

        def train(inputs, targets):
            loss, gradients = loss_and_gradients(model, inputs, targets)
            optimizer.update(model, gradients)
            return loss

        self.optimizer, self.train = optimizer, train
        if "mx.compile" in self.settings:
            # Dropout draws from the random state.
            state = [model.state, optimizer.state, mx.random.state]
            self.train = partial(mx.compile, inputs=state, outputs=state)(train)
        mx.eval(model.state, optimizer.state)

    def _batch_norms(self):
        return {name: getattr(self.model, name) for name, op in self.ops.items()
                if op == "batch_norm"}

    def _output_shapes(self):
        """Shapes that the modules really give, canonical and without the batch."""
        shape = self.network["input_shape"]
        shape = (*shape[1:], shape[0]) if len(shape) == 3 else shape
        x = mx.zeros((2, *shape), mx.int32 if self.network["vocabulary"] else mx.float32)
        return {name: tuple(output.shape[axis] for axis in (3, 1, 2)) if output.ndim == 4
                else output.shape[1:] for name, output in self.model.outputs(x).items()}


def canonical(array):
    """(O, H, W, I) -> (O, I, H, W); MLX keeps our order in all other tensors."""
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if array.ndim == 4 else array
