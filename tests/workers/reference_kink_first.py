"""The reference with gradients 5e-4 off in its first layer on every draw: as where some pre-activation always lies at a kink."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def gradients(self):
        first = self.layers[0]["name"] + "."
        return {name: gradient * (1 + 5e-4 * name.startswith(first)) for name, gradient in super().gradients().items()}
