"""LeNet-5 in the form that is taught today."""

from networks.builder import Builder
from networks.catalogue import network


@network("lenet5", data_set="mnist", batches=(64, 256), learning_rate=0.05)
def lenet5() -> Builder:
    """LeNet-5 with ReLU and max pooling on MNIST."""
    net = Builder(input_shape=(1, 28, 28))
    for filters, padding in ((6, 2), (16, 0)):
        net.conv(filters, kernel=5, padding=padding)
        net.relu()
        net.max_pool(2, 2)
    net.flatten()  # 16 x 5 x 5
    for units in (120, 84):
        net.dense(units)
        net.relu()
    net.dense(10)
    return net
