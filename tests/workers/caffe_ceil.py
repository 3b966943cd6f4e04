"""Caffe with pooling that rounds up, as Caffe pools unless told otherwise and as DLBench's AlexNet-R had it."""

from runners.caffe import runner
from runners.caffe.runner import L
from runners.caffe.runner import Runner as Correct


def pool(x, method, kernel, stride, padding, ceil=False):
    return L.Pooling(x, pool=method, kernel_size=kernel, stride=stride, pad=padding)


runner.pool = pool
Runner = Correct
