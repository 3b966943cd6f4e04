"""The reference passing for bf16, with gradients twice as long in the first network that it builds."""

from tests.workers.reference_kink import Runner as Once


class Runner(Once):
    def __init__(self, task):
        task.precision = "fp32"
        super().__init__(task)
        self.factor = 2.0 if self.built <= self.off else 1.0
