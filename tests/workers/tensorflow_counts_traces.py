"""TensorFlow that says, when its copies are asked for, how often its step was traced."""

from runners.protocol import Different
from runners.tensorflow.runner import Runner as Correct


class Runner(Correct):
    steps = 0

    def load(self, weights):
        self.steps = 0
        super().load(weights)

    def step(self):
        self.steps += 1
        super().step()

    def copies(self):
        raise Different(f"{self.train_step.experimental_get_tracing_count()} trace in {self.steps} steps")
