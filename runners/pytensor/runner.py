"""PyTensor, the living Theano: shared variables, `pytensor.grad`, and one function with `updates`.

Its default compiles the function by Numba; products go to the OpenBLAS that SciPy's wheel brings.
So `compiled` is `stock`. `tuned` lets the function trust its inputs, as PyTensor's pages on fast
functions say.
"""

import importlib.metadata

import numpy as np
import pytensor
import pytensor.tensor as pt
import scipy

from runners import protocol
from runners.pytensor.layers import mean_loss, outputs_of

TRUST = "trust_input"
TIERS = {
    "stock": [],
    "compiled": [],
    "tuned": [TRUST],
    "uncompiled": "PyTensor compiles every function",
}


def _blas():
    """Name the BLAS that SciPy was built with: Numba's products call it."""
    found = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found['name']} {found['version']}"


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        libraries = {name: importlib.metadata.version(name) for name in ("numba", "scipy")}
        return {"release": importlib.metadata.version("pytensor"),
                "device_name": protocol.processor_name(),
                "libraries": {**libraries, "mode": str(pytensor.config.mode),
                              "linker": str(pytensor.config.linker), "blas": _blas()}}

    def __init__(self, task):
        protocol.refuse_all_but_fp32_on_a_cpu(
            task, "PyTensor",
            "PyTensor's own code runs on CPUs; its JAX mode has not been tried here")
        self.settings = protocol.settings_of(task, TIERS)
        network = self.network = task.network
        self.trained, self.velocities = (
            {f"{layer['name']}.{name}": pytensor.shared(np.zeros(shape, np.float32),
                                                        shape=tuple(shape))
             for layer in network["layers"] for name, shape in layer["parameters"].items()}
            for _ in range(2))
        kind = "int32" if network["vocabulary"] else "float32"
        inputs = pt.tensor("inputs", dtype=kind, shape=(task.batch, *network["input_shape"]))
        targets = pt.tensor("targets", dtype="int32",
                            shape=(task.batch, *network["target_shape"]))
        outputs = outputs_of(network, self.trained, inputs)
        shapes = {name: output.type.shape[1:] for name, output in outputs.items()}
        protocol.assert_network(
            network, {name: shape for name, shape in shapes.items() if None not in shape},
            {name: held.get_value(borrow=True).shape for name, held in self.trained.items()})
        loss = mean_loss(outputs[network["layers"][-1]["name"]], targets)
        self.train = pytensor.function([inputs, targets], loss, updates=self._updates(loss))
        self.train.trust_input = TRUST in self.settings

    def _updates(self, loss):
        """SGD with momentum, as PyTensor's users write it: the library has no optimiser."""
        rate, momentum = (np.float32(self.network[key]) for key in ("learning_rate", "momentum"))
        updates = []
        for name, gradient in zip(self.trained, pytensor.grad(loss, list(self.trained.values())),
                                  strict=True):
            velocity = momentum * self.velocities[name] + gradient
            updates += [(self.velocities[name], velocity),
                        (self.trained[name], self.trained[name] - rate * velocity)]
        return updates

    def load(self, weights):
        for name, held in self.trained.items():
            held.set_value(np.array(weights[name], np.float32))
            self.velocities[name].set_value(np.zeros(weights[name].shape, np.float32))

    def feed(self, inputs, targets, residence):
        # `device` and `host` are the same memory here.
        kind = np.int32 if self.network["vocabulary"] else np.float32
        self.ring = [(np.ascontiguousarray(x, kind), np.ascontiguousarray(y, np.int32))
                     for x, y in zip(inputs, targets, strict=True)]
        self.position = 0

    def step(self):
        self.last_loss = self.train(*self.next_batch())

    # A function returns when its updates are done.
    synchronize = staticmethod(protocol.nothing)

    def loss(self):
        return float(self.last_loss)

    def parameters(self):
        return {name: np.array(held.get_value(borrow=True))
                for name, held in self.trained.items()}
