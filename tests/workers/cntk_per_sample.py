"""CNTK with its learning rate per sample, as its older scripts have it: the batch's sum moves the weights, not its mean."""

import cntk as C

from runners.cntk import runner
from runners.cntk.runner import Runner as Correct


def make_learner(parameters, network):
    rate = C.learning_parameter_schedule_per_sample(network["learning_rate"])
    return C.momentum_sgd(parameters, rate, C.momentum_schedule(network["momentum"]), unit_gain=False)


runner.make_learner = make_learner
Runner = Correct
