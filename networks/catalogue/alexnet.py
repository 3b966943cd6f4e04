"""AlexNet as DLBench (arXiv 1608.07249) used it: one column, and a small one for CIFAR-10."""

from networks.builder import Builder
from networks.catalogue import network


@network("alexnet", batches=(16, 32, 64, 128), learning_rate=0.01)
def alexnet() -> Builder:
    """AlexNet-S: one column, no groups, no local response normalisation, dropout before 4096s."""
    net = Builder(input_shape=(3, 224, 224))
    net.conv(96, kernel=11, stride=4, padding=2)
    net.relu()
    net.max_pool(3, 2)
    net.conv(256, kernel=5, padding=2)
    net.relu()
    net.max_pool(3, 2)
    for filters in (384, 384, 256):
        net.conv(filters, kernel=3, padding=1)
        net.relu()
    net.max_pool(3, 2)
    net.flatten()  # 256 x 6 x 6
    for _ in range(2):
        net.dropout(0.5)
        net.dense(4096)
        net.relu()
    net.dense(1000)
    return net


@network("alexnet_cifar", data_set="cifar10", batches=(64, 128, 256, 512, 1024, 2048),
         learning_rate=0.01)
def alexnet_cifar() -> Builder:
    """AlexNet-R: three 5x5 convolutions on CIFAR-10."""
    return _cifar(size=32, widths=(32, 32, 64), classes=10)


@network("tiny_cnn", batches=(4,), learning_rate=0.01, small=True)
def tiny_cnn() -> Builder:
    """AlexNet-R with a few channels on 18x18 images, for tests.

    Pooling that rounds up would change its last layer.
    """
    return _cifar(size=18, widths=(4, 5, 6), classes=7)


def _cifar(size: int, widths: tuple[int, int, int], classes: int) -> Builder:
    net = Builder(input_shape=(3, size, size))
    net.conv(widths[0], kernel=5, padding=2)
    net.max_pool(3, 2)
    net.relu()
    net.conv(widths[1], kernel=5, padding=2)
    net.relu()
    net.max_pool(3, 2)
    net.conv(widths[2], kernel=5, padding=2)
    net.relu()
    net.avg_pool(3, 2)
    net.flatten()
    net.dense(classes)
    return net


@network("tiny_dropout", batches=(4,), learning_rate=0.01, small=True)
def tiny_dropout() -> Builder:
    """AlexNet's first and last parts with a few channels, for tests."""
    net = Builder(input_shape=(3, 19, 19))
    net.conv(4, kernel=5, stride=2, padding=2)
    net.relu()
    net.max_pool(3, 2)
    net.flatten()
    net.dropout(0.5)
    net.dense(12)
    net.relu()
    net.dense(6)
    return net
