"""The reference with Nesterov's momentum, as Torch's DLBench scripts had it."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def update(self, name, gradient):
        momentum = self.network["momentum"]
        self.velocities[name] = momentum * self.velocities[name] + gradient
        self.weights[name] = self.weights[name] - self.network["learning_rate"] * (gradient + momentum * self.velocities[name])
