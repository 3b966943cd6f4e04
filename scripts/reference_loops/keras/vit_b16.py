"""ViT-B/16 as a functional Keras 3 model, with the attention layer of Keras's own example."""

import tensorflow as tf
import training
from keras import Input, Model, layers, ops

WIDTH, DEPTH, HEADS = 768, 12, 12


class ClassTokenAndPlaces(layers.Layer):
    def build(self, shape):
        self.token = self.add_weight(name="token", shape=(1, 1, WIDTH))
        self.places = self.add_weight(name="places", shape=(1, 1 + shape[1], WIDTH))

    def call(self, patches):
        token = ops.broadcast_to(self.token, (ops.shape(patches)[0], 1, WIDTH))
        return ops.concatenate([token, patches], 1) + self.places


def block(x):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y)])
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(y))
    return layers.Add()([x, y])


def build(options):
    training.set_precision(options)
    images = Input((224, 224, 3))
    x = layers.Conv2D(WIDTH, 16, 16)(images)
    x = ClassTokenAndPlaces()(layers.Reshape((-1, WIDTH))(x))
    for _ in range(DEPTH):
        x = block(x)
    logits = layers.Dense(1000)(layers.LayerNormalization(epsilon=1e-6)(x)[:, 0])
    return (Model(images, logits), tf.random.normal((options.batch, 224, 224, 3)),
            tf.range(options.batch) % 1000, 0.01)
