"""Transformers: GPT-2 as a language model and the Vision Transformer, pre-norm as published.

Neither drops units: no two frameworks draw the same masks inside attention.
"""

from networks.builder import Builder
from networks.catalogue import network


def gpt(vocabulary: int, length: int, width: int, depth: int, heads: int) -> Builder:
    """Radford et al. (2019): learned positions, GELU's tanh form, the embedding as the head."""
    net = Builder(input_shape=(length,), vocabulary=vocabulary)
    words = net.embedding(width)
    net.positions()
    for _ in range(depth):
        _block(net, heads, causal=True, epsilon=1e-5, tanh=True)
    net.layer_norm(1e-5)
    net.tied_dense(words)
    return net


def vision_transformer(size: int, patch: int, width: int, depth: int, heads: int,
                       classes: int) -> Builder:
    """Dosovitskiy et al. (arXiv 2010.11929): a class token before the patches, exact GELU."""
    net = Builder(input_shape=(3, size, size))
    net.conv(width, kernel=patch, stride=patch)
    net.tokens()
    net.class_token()
    net.positions()
    for _ in range(depth):
        _block(net, heads, causal=False, epsilon=1e-6, tanh=False)
    net.layer_norm(1e-6)
    net.first_token()
    net.dense(classes)
    return net


@network("gpt2_small", data_set="ptb", batches=(8, 32), learning_rate=0.01,
         short=lambda: gpt(50257, 32, 768, 12, 12))
def gpt2_small() -> Builder:
    """GPT-2 small: 12 blocks of 768, 12 heads, 1024 tokens of 50,257."""
    return gpt(50257, 1024, 768, 12, 12)


@network("vit_b16", batches=(32, 64, 128, 256), learning_rate=0.01,
         short=lambda: vision_transformer(64, 16, 768, 12, 12, 1000))
def vit_b16() -> Builder:
    """Vision Transformer ViT-B/16: 12 blocks of 768, 12 heads, patches of 16 x 16."""
    return vision_transformer(224, 16, 768, 12, 12, 1000)


@network("tiny_gpt", batches=(4,), learning_rate=0.1, small=True)
def tiny_gpt() -> Builder:
    """GPT-2 with two blocks of 48 and 3 heads, 16 tokens of 211, for tests."""
    return gpt(211, 16, 48, 2, 3)


@network("tiny_vit", batches=(4,), learning_rate=0.01, small=True)
def tiny_vit() -> Builder:
    """A Vision Transformer with two blocks of 48 and 3 heads on 16x16 images, for tests."""
    return vision_transformer(16, 4, 48, 2, 3, 10)


def _block(net: Builder, heads: int, causal: bool, epsilon: float, tanh: bool) -> None:
    """Attention, then two dense layers: a norm comes before each, an addition after it."""
    entry = net.last
    (_, width) = net.shapes[entry]
    net.layer_norm(epsilon)
    net.dense(3 * width)
    net.attention(heads, causal)
    entry = net.add(entry, net.dense(width))
    net.layer_norm(epsilon)
    net.dense(4 * width)
    net.gelu(tanh)
    net.add(entry, net.dense(width))
