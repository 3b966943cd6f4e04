"""The three networks of cuDNN v2's announcement: CaffeNet, GoogLeNet and VGG-16.

They are those that BVLC's Caffe publishes. Its pooling rounds up. CaffeNet's and VGG's windows fit
whole, so nothing changes; GoogLeNet's four 3x3/2 poolings do not (112, 56, 28 and 14 give 56, 28,
14 and 7), so they say `ceil`.
"""

from networks.builder import Builder
from networks.catalogue import network

# Filters of: 1x1; 3x3's reduction and 3x3; 5x5's reduction and 5x5; projection after pooling.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64), "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}


@network("caffenet", batches=(64, 128, 256), learning_rate=0.01)
def caffenet() -> Builder:
    """CaffeNet, BVLC's reference: AlexNet with groups in three convolutions, LRN after pooling."""
    net = Builder(input_shape=(3, 227, 227))
    net.conv(96, kernel=11, stride=4)
    net.relu()
    net.max_pool(3, 2)
    net.lrn()
    net.conv(256, kernel=5, padding=2, groups=2)
    net.relu()
    net.max_pool(3, 2)
    net.lrn()
    for filters, groups in ((384, 1), (384, 2), (256, 2)):
        net.conv(filters, kernel=3, padding=1, groups=groups)
        net.relu()
    net.max_pool(3, 2)
    net.flatten()  # 256 x 6 x 6
    _classify(net, 1000)
    return net


@network("vgg16", batches=(16, 32, 64), learning_rate=0.01)
def vgg16() -> Builder:
    """VGG-16, configuration D of Simonyan and Zisserman (arXiv 1409.1556)."""
    net = Builder(input_shape=(3, 224, 224))
    for filters, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            net.conv(filters, kernel=3, padding=1)
            net.relu()
        net.max_pool(2, 2)
    net.flatten()  # 512 x 7 x 7
    _classify(net, 1000)
    return net


@network("googlenet", batches=(32, 64, 128), learning_rate=0.01)
def googlenet() -> Builder:
    """GoogLeNet (Inception v1, arXiv 1409.4842) with LRN, without the auxiliary classifiers.

    Those add two losses, weighted 0.3, while a network trains; a network here has one loss, that of
    its last layer. BVLC's prototxt has 6,998,552 parameters without them, 13,378,280 with them.
    """
    net = Builder(input_shape=(3, 224, 224))
    net.conv(64, kernel=7, stride=2, padding=3)
    net.relu()
    net.max_pool(3, 2, ceil=True)
    net.lrn()
    net.conv(64, kernel=1)
    net.relu()
    net.conv(192, kernel=3, padding=1)
    net.relu()
    net.lrn()
    net.max_pool(3, 2, ceil=True)
    for name, filters in INCEPTIONS.items():
        _inception(net, filters)
        if name in ("3b", "4e"):
            net.max_pool(3, 2, ceil=True)
    net.global_avg_pool()  # 7x7
    net.dropout(0.4)
    net.dense(1000)
    return net


@network("tiny_inception", batches=(4,), learning_rate=0.01, small=True)
def tiny_inception() -> Builder:
    """CaffeNet's and GoogLeNet's parts with a few channels, for tests."""
    net = Builder(input_shape=(3, 14, 14))
    net.conv(8, kernel=3, padding=1)
    net.relu()
    net.max_pool(3, 2, ceil=True)
    # On so few channels LRN's own alpha of 1e-4 would be lost.
    net.lrn(alpha=0.5)
    net.conv(6, kernel=5, padding=2, groups=2)
    net.relu()
    net.lrn(size=3, alpha=0.5)
    _inception(net, (3, 2, 4, 2, 3, 2))
    net.max_pool(3, 2, ceil=True)
    net.global_avg_pool()
    net.dropout(0.4)
    net.dense(5)
    return net


def _classify(net: Builder, classes: int) -> None:
    for _ in range(2):
        net.dense(4096)
        net.relu()
        net.dropout(0.5)
    net.dense(classes)


def _inception(net: Builder, filters: tuple[int, int, int, int, int, int]) -> None:
    """1x1; 3x3 and 5x5 after reductions; 3x3 pooling and a projection. All with ReLU."""
    entry = net.last
    single, reduce3, triple, reduce5, quintuple, projection = filters
    branches = [net.relu(after=net.conv(single, kernel=1, after=entry))]
    for reduction, width, kernel in ((reduce3, triple, 3), (reduce5, quintuple, 5)):
        net.relu(after=net.conv(reduction, kernel=1, after=entry))
        net.conv(width, kernel=kernel, padding=kernel // 2)
        branches.append(net.relu())
    net.max_pool(3, 1, padding=1, after=entry)
    net.conv(projection, kernel=1)
    branches.append(net.relu())
    net.concat(branches)
