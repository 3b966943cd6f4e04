"""The reference with gradients 5e-4 off in the first network that it builds: as where rounding turned one ReLU."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    built = 0
    off = 1  # how many of the networks built are off

    def __init__(self, task):
        super().__init__(task)
        type(self).built += 1
        self.factor = 1 + 5e-4 * (self.built <= self.off)

    def gradients(self):
        return {name: self.factor * gradient for name, gradient in super().gradients().items()}
