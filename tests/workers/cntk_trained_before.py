"""CNTK that trains two steps on batches in host memory before the weights are loaded again."""

from runners.cntk.runner import Runner as Correct


class Runner(Correct):
    def load(self, weights):
        self.weights = weights
        super().load(weights)

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, "host")
        self.step()
        self.step()
        super().load(self.weights)
        self.position = 0
