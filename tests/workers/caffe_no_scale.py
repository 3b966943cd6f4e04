"""Caffe with batch norm that only normalises, as DLBench's files had it."""

from runners import caffe_runner
from runners.caffe_runner import L
from runners.caffe_runner import Runner as Correct


def batch_norm(x, epsilon, in_place):
    return L.BatchNorm(x, eps=epsilon, use_global_stats=False, param=[{"lr_mult": 0}] * 3)


caffe_runner.batch_norm = batch_norm
Runner = Correct
