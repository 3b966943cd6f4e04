"""A word-level language model in Keras 3: two LSTM layers of 256 over 10,000 words.

With cuDNN the gradients are wrong in bf16 (TensorFlow 2.21), so bf16 goes without.
"""

import tensorflow as tf
import training
from keras import Input, Sequential, layers


def build(options):
    training.set_precision(options)
    # XLA cannot compile cuDNN's LSTM.
    cudnn = False if options.precision == "bf16" or options.tier == "compiled" else "auto"
    lstms = [layers.LSTM(256, return_sequences=True, use_cudnn=cudnn) for _ in range(2)]
    model = Sequential([Input((options.words,), dtype="int32"), layers.Embedding(10000, 256),
                        *lstms, layers.Dense(10000)])
    words = tf.random.uniform((2, options.batch, options.words), 0, 10000, tf.int32)
    return model, words[0], words[1], 0.1
