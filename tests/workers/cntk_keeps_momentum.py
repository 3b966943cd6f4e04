"""CNTK that trains before the weights are loaded again, and does not forget the momentum of it."""

from tests.workers.cntk_trained_before import Runner as TrainedBefore


class Learner:
    def reset_smoothed_gradients(self):
        pass


class Runner(TrainedBefore):
    def __init__(self, task):
        super().__init__(task)
        self.learner = Learner()
