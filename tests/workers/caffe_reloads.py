"""Caffe that takes two steps, then loads the same weights and feeds the same batches again before it is asked for anything."""

from runners.caffe.runner import Runner as Correct


class Runner(Correct):
    def load(self, weights):
        self.weights = weights
        super().load(weights)

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, residence)
        self.step()
        self.step()
        super().load(self.weights)
