"""Word-level LSTM language models in the shape of DLBench's (arXiv 1608.07249).

There is one label a word; `batch` counts sequences.
"""

from networks.builder import Builder
from networks.catalogue import network


def language_model(vocabulary: int, length: int, width: int) -> Builder:
    net = Builder(input_shape=(length,), vocabulary=vocabulary)
    net.embedding(width)
    net.lstm(width)
    net.lstm(width)
    net.dense(vocabulary)
    return net


@network("lstm32", data_set="ptb", batches=(64, 128, 256, 512), learning_rate=0.1)
def lstm32() -> Builder:
    """Two LSTM layers of 256 over 32 words of Penn Treebank, 10,000 words."""
    return language_model(10000, 32, 256)


@network("lstm64", data_set="ptb", batches=(64, 128, 256, 512), learning_rate=0.1)
def lstm64() -> Builder:
    """Two LSTM layers of 256 over 64 words of Penn Treebank, 10,000 words."""
    return language_model(10000, 64, 256)


@network("tiny_lstm", batches=(4,), learning_rate=0.1, small=True)
def tiny_lstm() -> Builder:
    """A narrow LSTM for tests: 11 words, length 5, width 6."""
    return language_model(11, 5, 6)
