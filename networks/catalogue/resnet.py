"""Residual networks of He et al. (arXiv 1512.03385): ResNet-50 v1.5, and CIFAR-10's shortcut A."""

from networks.builder import Builder
from networks.catalogue import network


@network("resnet50", batches=(8, 16, 32, 64), learning_rate=0.01)
def resnet50() -> Builder:
    """ResNet-50 v1.5: bottlenecks 3-4-6-3, stride in the 3x3 convolution, no convolution biases."""
    net = Builder(input_shape=(3, 224, 224))
    _conv_norm(net, 64, kernel=7, stride=2)
    net.relu()
    net.max_pool(3, 2, padding=1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            _bottleneck(net, width=64 * 2**stage, stride=2 if stage > 0 and block == 0 else 1)
    net.global_avg_pool()
    net.dense(1000)
    return net


@network("resnet56", data_set="cifar10", batches=(16, 32, 64, 128), learning_rate=0.01)
def resnet56() -> Builder:
    """ResNet-56 for CIFAR-10: n = 9, widths 16 32 64, shortcut A."""
    return _cifar(size=32, blocks=9, widths=(16, 32, 64), classes=10)


@network("resnet8", data_set="cifar10", batches=(16, 32, 64, 128), learning_rate=0.01, small=True)
def resnet8() -> Builder:
    """ResNet-8 for CIFAR-10: ResNet-56 with n = 1, quick enough for a first look."""
    return _cifar(size=32, blocks=1, widths=(16, 32, 64), classes=10)


@network("tiny_resnet", batches=(4,), learning_rate=0.01, small=True)
def tiny_resnet() -> Builder:
    """ResNet-8 with a few channels on 8x8 images, for tests."""
    return _cifar(size=8, blocks=1, widths=(4, 6, 8), classes=5)


@network("tiny_bottleneck", batches=(4,), learning_rate=0.01, small=True)
def tiny_bottleneck() -> Builder:
    """ResNet-50's parts with a few channels, for tests."""
    net = Builder(input_shape=(3, 16, 16))
    _conv_norm(net, 4, kernel=7, stride=2)
    net.relu()
    net.max_pool(3, 2, padding=1)
    for width, stride in ((2, 1), (2, 1), (3, 2)):
        _bottleneck(net, width, stride)
    net.global_avg_pool()
    net.dense(5)
    return net


def _conv_norm(net: Builder, filters: int, kernel: int, stride: int = 1,
               after: str | None = None) -> str:
    """A convolution without bias that keeps an image's size at stride 1, and batch norm."""
    net.conv(filters, kernel, stride, padding=kernel // 2, bias=False, after=after)
    return net.batch_norm()


def _bottleneck(net: Builder, width: int, stride: int) -> None:
    """1x1, 3x3 with the stride, 1x1 to 4 x width; a projection where the shape changes."""
    shortcut = net.last
    _conv_norm(net, width, kernel=1)
    net.relu()
    _conv_norm(net, width, kernel=3, stride=stride)
    net.relu()
    branch = _conv_norm(net, 4 * width, kernel=1)
    if stride != 1 or net.shapes[shortcut][0] != 4 * width:
        shortcut = _conv_norm(net, 4 * width, kernel=1, stride=stride, after=shortcut)
    net.add(branch, shortcut)
    net.relu()


def _cifar(size: int, blocks: int, widths: tuple[int, int, int], classes: int) -> Builder:
    net = Builder(input_shape=(3, size, size))
    _conv_norm(net, widths[0], kernel=3)
    net.relu()
    for stage, width in enumerate(widths):
        for block in range(blocks):
            _basic_block(net, width, stride=2 if stage > 0 and block == 0 else 1)
    net.global_avg_pool()
    net.dense(classes)
    return net


def _basic_block(net: Builder, width: int, stride: int) -> None:
    """Two 3x3 convolutions; where the shape changes, subsample and append zero channels."""
    shortcut = net.last
    _conv_norm(net, width, kernel=3, stride=stride)
    net.relu()
    branch = _conv_norm(net, width, kernel=3)
    if stride != 1:
        extra = width - net.shapes[shortcut][0]
        shortcut = net.pad_channels(extra, after=net.subsample(stride, after=shortcut))
    net.add(branch, shortcut)
    net.relu()
