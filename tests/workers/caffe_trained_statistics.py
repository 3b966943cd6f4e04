"""Caffe with batch norm whose running statistics are left to the solver, as they are where nobody writes lr_mult: 0."""

from runners.caffe import runner
from runners.caffe.runner import L
from runners.caffe.runner import Runner as Correct


def batch_norm(x, epsilon, in_place):
    return L.Scale(L.BatchNorm(x, eps=epsilon, use_global_stats=False), bias_term=True)


runner.batch_norm = batch_norm
Runner = Correct
