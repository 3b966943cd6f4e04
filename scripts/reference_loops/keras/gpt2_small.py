"""GPT-2 small in Keras 3, in the shape of KerasHub's: its own attention layer, a tied head."""

import keras
import tensorflow as tf
import training
from keras import layers, ops

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS = 50257, 1024, 768, 12, 12


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.norms = [layers.LayerNormalization(epsilon=1e-5) for _ in range(2)]
        self.attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        self.wide, self.narrow = layers.Dense(4 * WIDTH), layers.Dense(WIDTH)

    def call(self, x):
        y = self.norms[0](x)
        x = x + self.attention(y, y, use_causal_mask=True)
        y = ops.gelu(self.wide(self.norms[1](x)), approximate=True)
        return x + self.narrow(y)


class GPT(keras.Model):
    def __init__(self):
        super().__init__()
        self.words = layers.Embedding(VOCABULARY, WIDTH)
        self.places = layers.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(DEPTH)]
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, words):
        x = self.words(words) + self.places(ops.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.norm(x), ops.transpose(self.words.embeddings))


def build(options):
    training.set_precision(options)
    words = tf.random.uniform((2, options.batch, LENGTH), 0, VOCABULARY, tf.int32)
    model = GPT()
    model(words[0, :1])
    return model, words[0], words[1], 0.01
