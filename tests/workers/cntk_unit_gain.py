"""CNTK with its default momentum, which scales each gradient by 1 - m ("unit gain")."""

import cntk as C

from runners.cntk import runner
from runners.cntk.runner import Runner as Correct


def make_learner(parameters, network):
    return C.momentum_sgd(parameters, network["learning_rate"], network["momentum"], minibatch_size=C.learners.IGNORE)


runner.make_learner = make_learner
Runner = Correct
