"""The counted work against counts made by hand: multiply-adds, bytes and the matrix products themselves."""

import pytest

import networks
from networks.work import (
    MatrixProduct,
    flops_per_step,
    matrix_products,
    multiply_adds,
    parameter_bytes,
    stages,
)

FORWARD = {  # sums of output values x window (or features), layer by layer
    "fcn5": 784 * 2048 + 2048 * 4096 + 4096 * 1024 + 1024 * 10,
    "fcns": 26752 * 2048 + 2 * 2048 * 2048 + 2048 * 26752,
    "alexnet": (55 * 55 * 96 * 3 * 121 + 27 * 27 * 256 * 96 * 25 + 13 * 13 * 384 * 256 * 9 + 13 * 13 * 384 * 384 * 9
                + 13 * 13 * 256 * 384 * 9 + 9216 * 4096 + 4096 * 4096 + 4096 * 1000),
    "resnet56": (32 * 32 * 16 * 27 + 18 * 32 * 32 * 16 * 144 + 16 * 16 * 32 * 144 + 17 * 16 * 16 * 32 * 288 + 8 * 8 * 64 * 288
                 + 17 * 8 * 8 * 64 * 576 + 64 * 10),
    "resnet50": 4_089_184_256,  # torchvision's resnet50 (v1.5) at 224 x 224
    "lenet5": 28 * 28 * 6 * 25 + 10 * 10 * 16 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10,
    "lstm32": 32 * (2 * 4 * 256 * (256 + 256) + 256 * 10000),
    "caffenet": (55 * 55 * 96 * 3 * 121 + 27 * 27 * 256 * 48 * 25 + 13 * 13 * 384 * 256 * 9 + 13 * 13 * 384 * 192 * 9
                 + 13 * 13 * 256 * 192 * 9 + 9216 * 4096 + 4096 * 4096 + 4096 * 1000),
    "googlenet": 1_582_671_872,  # the article says 1.5 billion
    "vgg16": 15_470_264_320,  # torchvision's vgg16 at 224 x 224
    # Per token and block 12 x 768^2 in dense layers and 2 x 1024 x 768 in attention; the head.
    "gpt2_small": 1024 * (12 * (12 * 768**2 + 2 * 1024 * 768) + 768 * 50257),
    "llama_1b": 2048 * (22 * (2048 * (2 * 2048 + 2 * 256 + 3 * 5632) + 2 * 2048 * 2048) + 2048 * 32000),
    "llama_block": 1024 * (2048 * (2 * 2048 + 2 * 256 + 3 * 5632) + 2 * 1024 * 2048 + 2048 * 1000),
    "vit_b16": 196 * 768 * 768 + 197 * 12 * (12 * 768**2 + 2 * 197 * 768) + 768 * 1000,
}
FIRST = {  # forward multiply-adds of the layer that reads the input, whose backward pass costs one product
    "fcn5": 784 * 2048,
    "fcns": 26752 * 2048,
    "alexnet": 55 * 55 * 96 * 3 * 121,
    "resnet56": 32 * 32 * 16 * 27,
    "resnet50": 112 * 112 * 64 * 147,
    "caffenet": 55 * 55 * 96 * 3 * 121,
    "googlenet": 112 * 112 * 64 * 147,
    "vgg16": 224 * 224 * 64 * 27,
    "lenet5": 28 * 28 * 6 * 25,
    "lstm32": 0,  # reads a table that is trained
    "gpt2_small": 0,
    "llama_1b": 0,
    "llama_block": 0,
    "vit_b16": 196 * 768 * 768,
}
everyone = pytest.mark.parametrize("name", networks.names() + networks.names(small=True))


def total(name):
    counts = multiply_adds(networks.get(name)).values()
    return sum(forward for forward, _ in counts), sum(backward for _, backward in counts)


@pytest.mark.parametrize("name", FORWARD)
def test_multiply_adds_are_those_counted_by_hand(name):
    assert total(name) == (FORWARD[name], 2 * FORWARD[name] - FIRST[name])


def test_the_counts_by_hand_are_the_published_ones():
    assert (FORWARD["alexnet"], FORWARD["resnet56"]) == (1_135_256_096, 125_485_696)


def test_a_dense_network_is_these_products():
    assert matrix_products(networks.get("tiny_fcn"), batch=7)[:5] == [
        MatrixProduct("dense1", "dense", "forward", 7, 16, 12, "NT"),
        MatrixProduct("dense1", "dense", "backward_weights", 16, 12, 7, "TN"),
        MatrixProduct("dense2", "dense", "forward", 7, 24, 16, "NT"),
        MatrixProduct("dense2", "dense", "backward_weights", 24, 16, 7, "TN"),
        MatrixProduct("dense2", "dense", "backward_data", 7, 16, 24, "NN"),
    ]


def test_a_convolution_is_the_product_of_its_unfolded_input():
    products = [product for product in matrix_products(networks.get("alexnet"), batch=2) if product.layer == "conv2d2"]
    rows, window = 2 * 27 * 27, 96 * 5 * 5
    assert products == [
        MatrixProduct("conv2d2", "conv2d", "forward", rows, 256, window, "NT"),
        MatrixProduct("conv2d2", "conv2d", "backward_weights", 256, window, rows, "TN"),
        MatrixProduct("conv2d2", "conv2d", "backward_data", rows, window, 256, "NN"),
    ]


def test_a_convolution_of_two_groups_is_two_products_of_half_the_channels():
    products = [product for product in matrix_products(networks.get("caffenet"), batch=2) if product.layer == "conv2d2"]
    rows, window = 2 * 27 * 27, 48 * 5 * 5
    assert products == [
        MatrixProduct("conv2d2", "conv2d", "forward", rows, 128, window, "NT", count=2),
        MatrixProduct("conv2d2", "conv2d", "backward_weights", 128, window, rows, "TN", count=2),
        MatrixProduct("conv2d2", "conv2d", "backward_data", rows, window, 128, "NN", count=2),
    ]


def test_an_lstm_is_one_product_of_all_words_and_one_of_the_state_for_each_word():
    products = [product for product in matrix_products(networks.get("lstm32"), batch=64) if product.layer == "lstm1"]
    assert products == [
        MatrixProduct("lstm1", "lstm", "forward", 64 * 32, 1024, 256, "NT"),
        MatrixProduct("lstm1", "lstm", "backward_weights", 1024, 256, 64 * 32, "TN"),
        MatrixProduct("lstm1", "lstm", "backward_data", 64 * 32, 256, 1024, "NN"),
        MatrixProduct("lstm1", "lstm", "forward", 64, 1024, 256, "NT", count=32),
        MatrixProduct("lstm1", "lstm", "backward_data", 64, 256, 1024, "NN", count=32),
        MatrixProduct("lstm1", "lstm", "backward_weights", 1024, 256, 64 * 32, "TN"),
    ]


def test_words_are_rows_of_the_last_dense_layer():
    last = matrix_products(networks.get("lstm32"), batch=64)[-1]
    assert last == MatrixProduct("dense1", "dense", "backward_data", 64 * 32, 256, 10000, "NN")


@everyone
def test_only_a_layer_that_reads_the_input_goes_without_its_gradient(name):
    network = networks.get(name)
    with_gradient = {product.layer for product in matrix_products(network, batch=1) if product.phase == "backward_data"}
    without = [layer for layer in network.layers
               if layer.op in ("dense", "conv2d", "lstm") and layer.name not in with_gradient]
    assert [layer.inputs for layer in without] == ([] if network.vocabulary else [("input",)])


@everyone
def test_the_products_sum_to_the_multiply_adds_of_the_batch(name):
    products = matrix_products(networks.get(name), batch=3)
    forward = sum(product.multiply_adds for product in products if product.phase == "forward")
    backward = sum(product.multiply_adds for product in products if product.phase != "forward")
    assert (forward, backward) == tuple(3 * count for count in total(name))
    assert flops_per_step(networks.get(name), batch=3) == 2 * (forward + backward)


def test_an_addition_and_a_pooling_have_no_multiply_adds():
    counts = multiply_adds(networks.get("tiny_bottleneck"))
    assert counts["add1"] == counts["max_pool1"] == counts["batch_norm1"] == (0, 0)
    assert counts["conv2d1"] == (8 * 8 * 4 * 147, 8 * 8 * 4 * 147)


def test_bytes_are_four_for_each_value():
    network = networks.get("tiny_dropout")  # a 5x5 convolution of 3 channels, dense 12, dense 6
    assert parameter_bytes(network) == 4 * ((4 * 75 + 4) + (64 * 12 + 12) + (12 * 6 + 6))


def test_stages_compute_what_the_products_do_and_update_every_parameter_once():
    for name in networks.names():
        network = networks.get(name)
        found = stages(network, batch=4)
        assert sum(stage.flops for stage in found if stage.phase != "update") == flops_per_step(network, 4)
        assert sum(stage.bytes for stage in found if stage.phase == "update") == 20 * network.parameter_count


def test_a_dense_layer_moves_its_input_weights_and_output_and_backward_their_gradients():
    first, second, _ = (stage for stage in stages(networks.get("fcn5"), 10) if stage.layer == "dense1")
    weights = 784 * 2048 + 2048
    assert (first.phase, first.bytes) == ("forward", 4 * (10 * 784 + weights + 10 * 2048))
    assert (second.phase, second.bytes) == ("backward", 4 * (10 * 784 + 10 * 2048 + weights))  # no gradient of the images


def test_half_precision_halves_what_products_move_and_not_what_the_update_does():
    full, half = (stages(networks.get("fcn5"), 10, size) for size in (4, 2))
    for one, other in zip(full, half, strict=True):
        weights = networks.get("fcn5").layer(one.layer).parameter_count
        kept = {"forward": 0, "backward": 4 * weights, "update": one.bytes}[one.phase]
        assert other.bytes - kept == (one.bytes - kept) / 2


def test_what_can_be_fused_moves_nothing():
    assert {stage.op for stage in stages(networks.get("resnet50"), 2)} == {"conv2d", "dense", "batch_norm"}
    assert {stage.phase for stage in stages(networks.get("resnet50"), 2) if stage.op == "batch_norm"} == {"update"}
    assert [stage.phase for stage in stages(networks.get("lstm32"), 2) if stage.op == "embedding"] == [
        "forward", "backward", "update"]
