"""ResNet-50 v1.5 in flax, as in its ImageNet example: N H W C."""

from functools import partial

import jax
import jax.numpy as jnp
import training
from flax import linen as nn


class Bottleneck(nn.Module):
    filters: int
    conv: object
    norm: object
    strides: int = 1

    @nn.compact
    def __call__(self, x):
        y = nn.relu(self.norm()(self.conv(self.filters, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.filters, (3, 3), self.strides)(y)))
        y = self.norm(scale_init=nn.initializers.zeros_init())(
            self.conv(4 * self.filters, (1, 1))(y))
        if x.shape != y.shape:
            x = self.norm()(self.conv(4 * self.filters, (1, 1), self.strides)(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    dtype: object
    trained: bool

    @nn.compact
    def __call__(self, x):
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = partial(nn.BatchNorm, use_running_average=self.trained, momentum=0.9, epsilon=1e-5,
                       dtype=self.dtype)
        x = nn.relu(norm()(conv(64, (7, 7), 2, padding=[(3, 3), (3, 3)])(x)))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                strides = 2 if stage > 0 and block == 0 else 1
                x = Bottleneck(64 * 2**stage, conv, norm, strides)(x)
        return nn.Dense(1000, dtype=self.dtype)(x.mean((1, 2)))


def build(options):
    dtype = training.dtype_of(options)
    images = jax.random.normal(jax.random.key(1), (options.batch, 224, 224, 3), dtype)
    model = ResNet50(dtype, trained=options.mode == "inference")
    return model, images, jnp.arange(options.batch) % 1000, 0.01
