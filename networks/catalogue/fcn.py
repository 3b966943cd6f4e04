"""Fully connected networks of DLBench (arXiv 1608.07249), sigmoid between the layers."""

from networks.builder import Builder
from networks.catalogue import network


def fully_connected(features: int, widths: tuple[int, ...], classes: int) -> Builder:
    net = Builder(input_shape=(features,))
    for width in widths:
        net.dense(width)
        net.sigmoid()
    net.dense(classes)
    return net


@network("fcn5", data_set="mnist", batches=(342, 512, 1024, 2048, 4096), learning_rate=0.05)
def fcn5() -> Builder:
    """FCN-R of DLBench: 784-2048-4096-1024-10 on MNIST."""
    return fully_connected(784, (2048, 4096, 1024), 10)


@network("fcn5s", batches=(8192,), learning_rate=0.05)
def fcn5s() -> Builder:
    """FCN-5 of DLBench: 512, three times 2048, 1000."""
    return fully_connected(512, (2048,) * 3, 1000)


@network("fcn8s", batches=(8192,), learning_rate=0.05)
def fcn8s() -> Builder:
    """FCN-8 of DLBench: 512, six times 2048, 1000."""
    return fully_connected(512, (2048,) * 6, 1000)


@network("fcns", batches=(32, 64, 128, 256, 512, 1024), learning_rate=0.05)
def fcns() -> Builder:
    """FCN-S of DLBench: 26752, three times 2048, 26752."""
    return fully_connected(26752, (2048,) * 3, 26752)


@network("tiny_fcn", batches=(4,), learning_rate=0.05, small=True)
def tiny_fcn() -> Builder:
    """A fully connected network for tests: 12-16-24-8-5, all different so that a swap shows."""
    return fully_connected(12, (16, 24, 8), 5)
