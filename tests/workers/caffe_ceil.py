"""Caffe with pooling that rounds up, as Caffe pools unless told otherwise and as DLBench's AlexNet-R had it."""

from runners import caffe_runner
from runners.caffe_runner import L
from runners.caffe_runner import Runner as Correct


def pool(x, method, kernel, stride, padding, ceil=False):
    return L.Pooling(x, pool=method, kernel_size=kernel, stride=stride, pad=padding)


caffe_runner.pool = pool
Runner = Correct
