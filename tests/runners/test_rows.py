"""Rows beside the large frameworks: Keras 3 on JAX and PyTorch, Flax, Equinox, MLX, tinygrad, PyTensor."""

import pytest

import networks
from tests.slow import slow_but

# LRN is the only operation that all of them lack.
SMALL = [name for name in networks.names(small=True)
         if name.startswith("tiny_") and name != "tiny_inception"]
ROWS = ("keras_jax", "keras_torch", "flax", "equinox", "mlx", "tinygrad")
# Faults in the layers of Transformers are quick in four of them.
QUICK = [*((row, "tiny_resnet") for row in ROWS), ("mlx", "tiny_llama")]
# PyTensor has no convolution of batches. Numba compiles its first functions for a minute and more.
IN_PYTENSOR = ("tiny_fcn", "tiny_lstm", "tiny_gpt", "tiny_llama")
IN_BF16 = ("keras_jax", "keras_torch", "flax", "equinox")


@pytest.mark.parametrize(("row", "network"), [
    *slow_but(QUICK, [(row, name) for row in ROWS for name in SMALL]),
    *slow_but([], [("pytensor", name) for name in IN_PYTENSOR])])
def test_a_small_network_is_the_same_in_each_row(verdict, row, network):
    found = verdict(row, network)
    assert (found.verdict, found.reason) == ("same", "")
    assert found.parameters == networks.get(network).parameter_count


@pytest.mark.parametrize(("row", "network"), slow_but(
    [("flax", "tiny_resnet")],
    [(row, name) for row in IN_BF16 for name in ("tiny_resnet", "tiny_lstm", "tiny_gpt")]))
def test_a_row_that_offers_bf16_is_the_same_in_it(verdict, row, network):
    assert verdict(row, network, precision="bf16").verdict == "same"


@pytest.mark.parametrize(("row", "tuning"), slow_but([("flax", "tuned")], [
    ("flax", "tuned"), ("equinox", "tuned"), ("mlx", "compiled"), ("keras_torch", "compiled"), ("pytensor", "tuned")]))
def test_a_tier_of_a_row_is_the_same(verdict, row, tuning):
    # MLX compiles each shape's kernels with g++: 76 s for a small ResNet.
    network = {"pytensor": "tiny_lstm", "mlx": "tiny_fcn"}.get(row, "tiny_resnet")
    assert verdict(row, network, tuning=tuning).verdict == "same"


@pytest.mark.parametrize(("row", "network", "fault", "reason"), [
    ("keras_jax", "tiny_gpt", "keras:KerasEpsilon", "layer_norm5.scale moved"),
    ("keras_torch", "tiny_fcn", "keras:Accumulates", "momentum"),
    ("flax", "tiny_gpt", "flax:FlaxEpsilon", "layer_norm5.scale moved"),
    ("equinox", "tiny_fcn", "equinox:Forgetful", "momentum"),
    ("equinox", "tiny_gpt", "equinox:ExactGelu", "gradients differ"),
    ("mlx", "tiny_llama", "mlx:Pairs", "linear15.weight moved"),
    ("tinygrad", "tiny_fcn", "tinygrad:StaleLoss", "loss"),
    *slow_but([], [("pytensor", "tiny_fcn", "pytensor:OldVelocity", "momentum"),
                   ("pytensor", "tiny_gpt", "pytensor:ExactGelu", "gradients differ")]),
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
