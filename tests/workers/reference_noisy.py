"""The reference with errors of single precision: every gradient and loss a part in a million off."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def gradients(self):
        return {name: gradient * (1 + 1e-6) for name, gradient in super().gradients().items()}

    def loss(self):
        return super().loss() * (1 + 1e-7)
