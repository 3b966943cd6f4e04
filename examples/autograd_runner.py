"""Autograd: NumPy with derivatives. Fully connected networks in fp32."""

import importlib.metadata

import autograd
import autograd.numpy as np
import numpy

from runners import protocol


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        release = importlib.metadata.version("autograd")
        return {"release": release, "libraries": {"numpy": numpy.__version__}}

    def __init__(self, task):
        if (task.device, task.precision, task.tuning) != ("cpu", "fp32", "stock"):
            raise protocol.Unsupported("Autograd has the CPU, fp32 and stock")
        for layer in task.network["layers"]:
            if layer["op"] not in ("dense", "sigmoid"):
                name, op = layer["name"], layer["op"]
                raise protocol.Unsupported(f"layer {name}: Autograd has no operation '{op}'")
        self.network = task.network
        self.weights = {
            f"{layer['name']}.{name}": numpy.zeros(shape, numpy.float32)
            for layer in task.network["layers"] for name, shape in layer["parameters"].items()
        }
        x = numpy.zeros((task.batch, *task.network["input_shape"]), numpy.float32)
        outputs = forward(self.network, self.weights, x)
        protocol.assert_network(
            task.network, {name: output.shape[1:] for name, output in outputs.items()},
            {name: array.shape for name, array in self.weights.items()})
        self.loss_and_gradients = autograd.value_and_grad(
            lambda weights, x, y: mean_loss(self.network, weights, x, y))

    def load(self, weights):
        self.weights = {name: array.copy() for name, array in weights.items()}
        self.velocities = {name: numpy.zeros_like(array) for name, array in weights.items()}

    def feed(self, inputs, targets, residence):
        # `device` and `host` are the same memory here
        self.ring = list(zip(inputs, targets, strict=True))
        self.position = 0

    def step(self):
        self.last_loss, gradients = self.loss_and_gradients(self.weights, *self.next_batch())
        momentum, rate = self.network["momentum"], self.network["learning_rate"]
        for name, gradient in gradients.items():
            self.velocities[name] = momentum * self.velocities[name] + gradient
            self.weights[name] -= rate * self.velocities[name]

    def synchronize(self):
        pass  # NumPy returns when it is done

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        return self.weights


def forward(network, weights, x):
    """Every layer's output, (B, ...), by name."""
    outputs = {"input": x}
    for layer in network["layers"]:
        name, x = layer["name"], outputs[layer["inputs"][0]]
        if layer["op"] == "dense":
            outputs[name] = x @ weights[name + ".weight"].T + weights[name + ".bias"]
        else:
            outputs[name] = np.float32(1) / (np.float32(1) + np.exp(-x))
    return outputs


def mean_loss(network, weights, x, y):
    logits = forward(network, weights, x)[network["layers"][-1]["name"]]  # (B, K)
    shifted = logits - np.max(logits, axis=1, keepdims=True)
    right = shifted[numpy.arange(len(y)), y]
    return np.mean(np.log(np.sum(np.exp(shifted), axis=1)) - right)
