"""MXNet with Nesterov's momentum: `nag`, the optimizer next to `sgd` in its list."""

from mxnet import gluon

from runners.mxnet.runner import Runner as Correct


class Runner(Correct):
    def _make_trainer(self):
        correct = super()._make_trainer().optimizer
        options = {"learning_rate": correct.learning_rate, "momentum": correct.momentum}
        return gluon.Trainer(list(self.trained.values()), "nag", options)
