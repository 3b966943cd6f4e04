"""Llama (arXiv 2302.13971): RMSNorm, rotary positions, grouped-query attention and SwiGLU."""

from networks.builder import Builder
from networks.catalogue import network


def llama(vocabulary: int, length: int, width: int, depth: int, heads: tuple[int, int],
          hidden: int) -> Builder:
    """No biases; `heads` are those of queries, and of keys and values. The head is not tied."""
    net = Builder(input_shape=(length,), vocabulary=vocabulary)
    net.embedding(width)
    for _ in range(depth):
        _block(net, *heads, hidden)
    net.rms_norm(1e-5)
    net.linear(vocabulary)
    return net


def tinyllama(length: int) -> Builder:
    return llama(32000, length, 2048, 22, (32, 4), 5632)


def one_block(length: int) -> Builder:
    return llama(1000, length, 2048, 1, (32, 4), 5632)


@network("llama_block", batches=(8, 32), learning_rate=0.01, short=lambda: one_block(32))
def llama_block() -> Builder:
    """One block of TinyLlama-1.1B, 1024 tokens of 1,000.

    The small vocabulary leaves 96 % of the products to the block.
    """
    return one_block(1024)


@network("llama_1b", batches=(1, 4), learning_rate=0.01, large=True,
         short=lambda: tinyllama(32))
def llama_1b() -> Builder:
    """TinyLlama-1.1B (arXiv 2401.02385): 22 blocks of 2048, 32 heads on 4, 2048 tokens of 32,000.
    """
    return tinyllama(2048)


@network("tiny_llama", batches=(4,), learning_rate=0.1, small=True)
def tiny_llama() -> Builder:
    """Llama with two blocks of 48, 6 heads on 2, 16 tokens of 211, for tests."""
    return llama(211, 16, 48, 2, (6, 2), 80)


def _block(net: Builder, heads: int, groups: int, hidden: int) -> None:
    """Attention, then a gated layer: a norm comes before each, a residual addition after it."""
    entry = net.last
    (_, width) = net.shapes[entry]
    few = groups * width // heads
    normal = net.rms_norm(1e-5)
    queries = net.rotary(heads, after=net.linear(width))
    keys = net.rotary(groups, after=net.linear(few, after=normal))
    values = net.linear(few, after=normal)
    net.grouped_attention(heads, queries, keys, values)
    entry = net.add(entry, net.linear(width))
    normal = net.rms_norm(1e-5)
    gate = net.linear(hidden)
    net.swiglu(gate, net.linear(hidden, after=normal))
    net.add(entry, net.linear(width))
