"""Rows beside the large frameworks: Keras 3 on JAX and PyTorch, Flax, Equinox, MLX, tinygrad, PyTensor."""

import os

import pytest

import networks
from networks.builder import Builder
from networks.description import Network
from tests.slow import slow_but

# LRN is the only operation that all of them lack.
SMALL = [name for name in networks.names(small=True)
         if name.startswith("tiny_") and name != "tiny_inception"]
ROWS = ("keras_jax", "keras_torch", "flax", "equinox", "mlx", "tinygrad")
# These compile every shape for seconds, so CI proves them on SHORT networks.
COMPILE_LONG = ("keras_jax", "flax", "equinox", "tinygrad")
QUICK = [("keras_torch", "tiny_resnet"), ("mlx", "tiny_resnet"), ("mlx", "tiny_llama")]
# PyTensor has no convolution of batches.
IN_PYTENSOR = ("tiny_lstm", "tiny_gpt", "tiny_llama")
IN_BF16 = ("keras_jax", "keras_torch", "flax", "equinox")
on_demand = pytest.mark.skipif(
    not os.environ.get("DLBENCH_ALL_ROWS"),
    reason="they compile for ten minutes in all: DLBENCH_ALL_ROWS=1 runs them")


def short_images():
    net = Builder((3, 8, 8))
    net.conv(4, kernel=3, padding=1, bias=False)
    net.batch_norm()
    pooled = net.max_pool(3, stride=2, padding=1)
    net.conv(4, kernel=3, padding=1, groups=2)
    net.relu()
    net.add(net.last, pooled)
    net.subsample(2)
    net.pad_channels(2)
    net.global_avg_pool()
    net.dense(5)
    return network_of("short_images", net)


def short_words():
    net = Builder((2,), vocabulary=11)
    net.embedding(6)
    net.positions()
    net.dense(18)
    net.attention(heads=2, causal=False)
    net.lstm(6)
    net.layer_norm(1e-5)
    net.gelu(tanh=True)
    net.dense(11)
    return network_of("short_words", net)


def network_of(name, net):
    [classes] = net.shapes[net.last][-1:]
    return Network(name, "For tests", "synthetic", (4,), learning_rate=0.1, momentum=0.9, input_shape=net.input_shape,
                   vocabulary=net.vocabulary, classes=classes, layers=tuple(net.layers))


SHORT = {"images": short_images(), "words": short_words()}


@pytest.mark.parametrize(("row", "network"), [
    *slow_but(QUICK, [(row, name) for row in ("keras_torch", "mlx") for name in SMALL]),
    *slow_but([], [("pytensor", "tiny_fcn")]),
    *(pytest.param(row, name, marks=on_demand) for row in COMPILE_LONG for name in SMALL),
    *(pytest.param("pytensor", name, marks=on_demand) for name in IN_PYTENSOR)])
def test_a_small_network_is_the_same_in_each_row(verdict, row, network):
    found = verdict(row, network)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == networks.get(network).parameter_count


@pytest.mark.parametrize(("row", "kind"), slow_but(
    [("flax", "words"), ("equinox", "words"), ("keras_jax", "words")],
    [(row, kind) for row in COMPILE_LONG for kind in SHORT]))
def test_a_short_network_is_the_same_in_a_row_that_compiles_long(verdict, row, kind):
    found = verdict(row, SHORT[kind])
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == SHORT[kind].parameter_count


@pytest.mark.parametrize(("row", "network"), [
    *((row, "tiny_lstm") for row in IN_BF16),
    *(pytest.param(row, name, marks=on_demand) for row in IN_BF16 for name in ("tiny_resnet", "tiny_gpt"))])
def test_a_row_that_offers_bf16_is_the_same_in_it(verdict, row, network):
    assert verdict(row, network, precision="bf16").verdict == "same"


@pytest.mark.parametrize(("row", "tuning"), [
    ("flax", "tuned"), ("equinox", "tuned"), *slow_but([], [("mlx", "compiled"), ("tinygrad", "compiled"), ("pytensor", "tuned")]),
    pytest.param("keras_torch", "compiled", marks=on_demand)])
def test_a_tier_of_a_row_is_the_same(verdict, row, tuning):
    # Compilers of C++ take a minute for an image's network.
    network = SHORT["images"] if row in ("flax", "equinox") else "tiny_fcn"
    assert verdict(row, network, tuning=tuning).verdict == "same"


@pytest.mark.parametrize(("row", "network", "fault", "reason"), [
    ("keras_torch", "tiny_fcn", "keras:Accumulates", "momentum"),
    ("flax", "tiny_gpt", "flax:FlaxEpsilon", "layer_norm5.scale moved"),
    ("equinox", "tiny_fcn", "equinox:Forgetful", "momentum"),
    ("equinox", "tiny_gpt", "equinox:ExactGelu", "gradients differ"),
    ("mlx", "tiny_llama", "mlx:Pairs", "linear15.weight moved"),
    *slow_but([], [("keras_jax", "tiny_gpt", "keras:KerasEpsilon", "layer_norm5.scale moved"),
                   ("tinygrad", "tiny_fcn", "tinygrad:StaleLoss", "loss"),
                   ("pytensor", "tiny_fcn", "pytensor:OldVelocity", "momentum")]),
    pytest.param("pytensor", "tiny_gpt", "pytensor:ExactGelu", "gradients differ", marks=on_demand),
])
def test_a_fault_of_a_row_is_different(verdict, row, network, fault, reason):
    found = verdict(row, network, fault=fault)
    assert found.verdict == "different" and reason in found.reason


def test_images_and_bf16_are_unsupported_in_pytensor_with_their_reason(verdict):
    found = verdict("pytensor", "tiny_inception")
    assert found.verdict == "unsupported" and "no convolution over batches and channels" in found.reason
    found = verdict("pytensor", "tiny_fcn", precision="bf16")
    assert found.verdict == "unsupported" and "no mixed precision" in found.reason


@pytest.mark.parametrize("row", ROWS)
def test_lrn_and_fp16_are_unsupported_with_their_reason(verdict, row):
    found = verdict(row, "tiny_inception")
    assert found.verdict == "unsupported" and "ocal response normalisation" in found.reason
    found = verdict(row, "tiny_fcn", precision="fp16")
    assert found.verdict == "unsupported" and "fp16" in found.reason
