"""The catalogue against the published counts and shapes, and each guard of the builder against a network that it must refuse."""

import itertools
import json
from pathlib import Path

import pytest

import networks
from networks import catalogue
from networks.builder import Builder

PARAMETERS = {
    "alexnet": 62_378_344,
    "alexnet_cifar": 85_098,
    "caffenet": 60_965_224,  # models/bvlc_reference_caffenet of BVLC's Caffe
    "fcn5": 14_205_962,
    "fcn5s": 11_492_328,
    "fcn8s": 24_081_384,
    "fcns": 117_997_696,
    "gpt2_small": 124_439_808,  # openai-community/gpt2, its head tied
    "googlenet": 6_998_552,  # models/bvlc_googlenet without loss1 and loss2
    "lenet5": 61_706,  # of the form that d2l.ai/chapter_convolutional-neural-networks/lenet.html teaches
    "llama_1b": 1_100_048_384,  # TinyLlama/TinyLlama-1.1B
    "llama_block": 48_142_336,  # a block of it has 44,044,288, and the vocabulary 1,000 words
    "lstm32": 6_180_624,
    "lstm64": 6_180_624,
    "resnet50": 25_557_032,
    "resnet56": 853_018,
    "vgg16": 138_357_544,
    "vit_b16": 86_567_656,  # torchvision's vit_b_16
}
SMALL = ["resnet8", "tiny_bottleneck", "tiny_cnn", "tiny_dropout", "tiny_fcn", "tiny_gpt", "tiny_inception", "tiny_llama", "tiny_lstm", "tiny_resnet",
         "tiny_vit"]
IMAGE_OPERATIONS = {
    "conv2d": lambda net: net.conv(2, kernel=1),
    "max_pool": lambda net: net.max_pool(2, 2),
    "avg_pool": lambda net: net.avg_pool(2, 2),
    "global_avg_pool": lambda net: net.global_avg_pool(),
    "batch_norm": lambda net: net.batch_norm(),
    "flatten": lambda net: net.flatten(),
    "subsample": lambda net: net.subsample(2),
    "lrn": lambda net: net.lrn(),
    "concat": lambda net: net.concat(["input"]),
    "pad_channels": lambda net: net.pad_channels(1),
    "tokens": lambda net: net.tokens(),
}
everyone = pytest.mark.parametrize("name", [*PARAMETERS, *SMALL])


def shapes_of(network, *ops):
    return [layer.output_shape for layer in network.layers if layer.op in ops]


def test_the_published_networks_are_eighteen_and_their_small_relatives_apart():
    assert networks.names() == sorted(PARAMETERS)
    assert networks.names(small=True) == SMALL
    assert set(networks.names()) - set(networks.names(large=False)) == {"llama_1b"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_parameters_are_those_published(name):
    assert networks.get(name).parameter_count == PARAMETERS[name]


@pytest.mark.parametrize(("name", "input_shape", "vocabulary", "target_shape", "classes", "rate", "batches", "data_set"), [
    ("fcn5", (784,), 0, (), 10, 0.05, (342, 512, 1024, 2048, 4096), "mnist"),
    ("fcn5s", (512,), 0, (), 1000, 0.05, (8192,), "synthetic"),
    ("fcn8s", (512,), 0, (), 1000, 0.05, (8192,), "synthetic"),
    ("fcns", (26752,), 0, (), 26752, 0.05, (32, 64, 128, 256, 512, 1024), "synthetic"),
    ("alexnet", (3, 224, 224), 0, (), 1000, 0.01, (16, 32, 64, 128), "synthetic"),
    ("alexnet_cifar", (3, 32, 32), 0, (), 10, 0.01, (64, 128, 256, 512, 1024, 2048), "cifar10"),
    ("resnet50", (3, 224, 224), 0, (), 1000, 0.01, (8, 16, 32, 64), "synthetic"),
    ("resnet56", (3, 32, 32), 0, (), 10, 0.01, (16, 32, 64, 128), "cifar10"),
    ("caffenet", (3, 227, 227), 0, (), 1000, 0.01, (64, 128, 256), "synthetic"),
    ("googlenet", (3, 224, 224), 0, (), 1000, 0.01, (32, 64, 128), "synthetic"),
    ("vgg16", (3, 224, 224), 0, (), 1000, 0.01, (16, 32, 64), "synthetic"),
    ("vit_b16", (3, 224, 224), 0, (), 1000, 0.01, (32, 64, 128, 256), "synthetic"),
    ("gpt2_small", (1024,), 50257, (1024,), 50257, 0.01, (8, 32), "ptb"),
    ("llama_1b", (2048,), 32000, (2048,), 32000, 0.01, (1, 4), "synthetic"),
    ("llama_block", (1024,), 1000, (1024,), 1000, 0.01, (8, 32), "synthetic"),
    ("lenet5", (1, 28, 28), 0, (), 10, 0.05, (64, 256), "mnist"),
    ("lstm32", (32,), 10000, (32,), 10000, 0.1, (64, 128, 256, 512), "ptb"),
    ("lstm64", (64,), 10000, (64,), 10000, 0.1, (64, 128, 256, 512), "ptb"),
])
def test_inputs_targets_and_constants_are_those_published(
        name, input_shape, vocabulary, target_shape, classes, rate, batches, data_set):
    network = networks.get(name)
    assert (network.input_shape, network.vocabulary, network.target_shape, network.classes) == (
        input_shape, vocabulary, target_shape, classes)
    assert (network.learning_rate, network.momentum, network.batches, network.data_set) == (rate, 0.9, batches, data_set)


def test_the_widths_of_fcn5_are_2048_4096_1024_in_that_order():
    assert shapes_of(networks.get("fcn5"), "dense") == [(2048,), (4096,), (1024,), (10,)]


def test_alexnet_has_the_shapes_of_one_column_without_groups():
    network = networks.get("alexnet")
    assert shapes_of(network, "conv2d", "max_pool", "flatten", "dense") == [
        (96, 55, 55), (96, 27, 27), (256, 27, 27), (256, 13, 13), (384, 13, 13), (384, 13, 13), (256, 13, 13), (256, 6, 6),
        (9216,), (4096,), (4096,), (1000,)]
    assert network.layer("conv2d2").parameters["weight"] == (256, 96, 5, 5)
    assert [layer.op for layer in network.layers[-8:]] == [
        "flatten", "dropout", "dense", "relu", "dropout", "dense", "relu", "dense"]


def test_caffenet_has_groups_in_three_convolutions_and_lrn_behind_two_poolings():
    network = networks.get("caffenet")
    assert shapes_of(network, "conv2d", "max_pool", "lrn", "flatten", "dense") == [
        (96, 55, 55), (96, 27, 27), (96, 27, 27), (256, 27, 27), (256, 13, 13), (256, 13, 13),
        (384, 13, 13), (384, 13, 13), (256, 13, 13), (256, 6, 6), (9216,), (4096,), (4096,), (1000,)]
    assert [layer.parameters["weight"] for layer in network.layers if layer.op == "conv2d"] == [
        (96, 3, 11, 11), (256, 48, 5, 5), (384, 256, 3, 3), (384, 192, 3, 3), (256, 192, 3, 3)]
    assert [layer.attributes for layer in network.layers if layer.op == "lrn"] == [{"size": 5, "alpha": 1e-4, "beta": 0.75}] * 2
    assert [layer.op for layer in network.layers[-7:]] == ["dense", "relu", "dropout", "dense", "relu", "dropout", "dense"]


def test_googlenet_keeps_the_shapes_of_caffes_pooling_and_nine_inceptions():
    network = networks.get("googlenet")
    assert [layer.output_shape for layer in network.layers if layer.op == "max_pool" and layer.attributes["ceil"]] == [
        (64, 56, 56), (192, 28, 28), (480, 14, 14), (832, 7, 7)]
    assert shapes_of(network, "concat") == [
        (256, 28, 28), (480, 28, 28), (512, 14, 14), (512, 14, 14), (512, 14, 14), (528, 14, 14), (832, 14, 14), (832, 7, 7),
        (1024, 7, 7)]
    assert (len(shapes_of(network, "conv2d")), shapes_of(network, "lrn")) == (57, [(64, 56, 56), (192, 56, 56)])


def test_the_auxiliary_classifiers_of_googlenet_are_what_is_missing_of_bvlcs_13_378_280():
    heads = [channels * 128 + 128 + 2048 * 1024 + 1024 + 1024 * 1000 + 1000 for channels in (512, 528)]  # behind 4a and 4d
    assert networks.get("googlenet").parameter_count + sum(heads) == 13_378_280


def test_vgg16_is_configuration_d():
    network = networks.get("vgg16")
    assert shapes_of(network, "max_pool", "flatten", "dense") == [
        (64, 112, 112), (128, 56, 56), (256, 28, 28), (512, 14, 14), (512, 7, 7), (25088,), (4096,), (4096,), (1000,)]
    assert [shape[0] for shape in shapes_of(network, "conv2d")] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6


def test_pooling_in_alexnet_cifar_rounds_down():
    network = networks.get("alexnet_cifar")
    assert shapes_of(network, "conv2d", "max_pool", "avg_pool", "flatten") == [
        (32, 32, 32), (32, 15, 15), (32, 15, 15), (32, 7, 7), (64, 7, 7), (64, 3, 3), (576,)]


def test_resnet50_has_its_stages_and_its_stride_in_the_3x3():
    network = networks.get("resnet50")
    convolutions = [layer for layer in network.layers if layer.op == "conv2d"]
    assert len(convolutions) == 53
    assert shapes_of(network, "add") == [(256, 56, 56)] * 3 + [(512, 28, 28)] * 4 + [(1024, 14, 14)] * 6 + [(2048, 7, 7)] * 3
    strided = [(layer.attributes["kernel"], layer.attributes["filters"]) for layer in convolutions
               if layer.attributes["stride"] == 2]
    assert strided == [(7, 64), (3, 128), (1, 512), (3, 256), (1, 1024), (3, 512), (1, 2048)]  # each 1x1 is a projection
    assert all(set(layer.parameters) == {"weight"} for layer in convolutions)


def test_resnet56_has_55_convolutions_and_shortcuts_without_parameters():
    network = networks.get("resnet56")
    assert len(shapes_of(network, "conv2d")) == 55
    assert shapes_of(network, "add") == [(16, 32, 32)] * 9 + [(32, 16, 16)] * 9 + [(64, 8, 8)] * 9
    assert shapes_of(network, "subsample", "pad_channels") == [(16, 16, 16), (32, 16, 16), (32, 8, 8), (64, 8, 8)]
    assert {layer.attributes["kernel"] for layer in network.layers if layer.op == "conv2d"} == {3}


def test_the_lstm_has_one_bias_vector_a_layer():
    assert networks.get("lstm32").parameter_shapes == {
        "embedding1.weight": (10000, 256),
        "lstm1.weight_input": (1024, 256), "lstm1.weight_hidden": (1024, 256), "lstm1.bias": (1024,),
        "lstm2.weight_input": (1024, 256), "lstm2.weight_hidden": (1024, 256), "lstm2.bias": (1024,),
        "dense1.weight": (10000, 256), "dense1.bias": (10000,),
    }


@everyone
def test_every_layer_is_on_the_path_to_the_loss(name):
    network = networks.get(name)
    read = {source for layer in network.layers for source in layer.inputs}
    assert [layer.name for layer in network.layers if layer.name not in read] == [network.layers[-1].name]


@everyone
def test_the_logits_are_a_bare_dense_layer(name):
    assert networks.get(name).layers[-1].op == (
        "tied_dense" if "gpt" in name else "linear" if "llama" in name else "dense")


@everyone
def test_a_relu_or_in_a_transformer_a_norm_follows_every_addition(name):
    layers = networks.get(name).layers
    attends = any(layer.op.endswith("attention") for layer in layers)
    follower = "rms_norm" if "llama" in name else "layer_norm" if attends else "relu"
    assert [after.op for before, after in itertools.pairwise(layers) if before.op == "add"] == [
        follower for layer in layers if layer.op == "add"]


@everyone
def test_batch_norm_scales_and_shifts_every_channel_with_epsilon_1e_5_and_keeps_nine_tenths(name):
    for layer in networks.get(name).layers:
        if layer.op == "batch_norm":
            channels = layer.output_shape[:1]
            assert (layer.parameters, layer.attributes) == (
                {"scale": channels, "shift": channels}, {"epsilon": 1e-5, "running": 0.9})


@everyone
def test_the_json_form_survives_the_wire_and_carries_the_parameter_count(name):
    network = networks.get(name)
    read = json.loads(json.dumps(network.to_json()))
    assert read["parameter_count"] == network.parameter_count
    assert tuple(read["target_shape"]) == network.target_shape
    assert [(layer["name"], layer["op"], tuple(layer["output_shape"])) for layer in read["layers"]] == [
        (layer.name, layer.op, layer.output_shape) for layer in network.layers]


def test_only_networks_with_dropout_say_so():
    assert [name for name in [*PARAMETERS, *SMALL] if networks.get(name).has_dropout] == [
        "alexnet", "caffenet", "googlenet", "vgg16", "tiny_dropout", "tiny_inception"]


def test_shape_of_knows_the_input_and_every_layer():
    network = networks.get("tiny_fcn")
    assert (network.shape_of("input"), network.shape_of("dense2")) == ((12,), (24,))


def test_an_unknown_network_names_those_that_exist():
    with pytest.raises(networks.UnknownNetwork, match=r"unknown network lenet6; did you mean lenet5\? Known: alexnet, .*resnet56, vgg16, vit_b16, resnet8"):
        networks.get("lenet6")
    with pytest.raises(networks.UnknownNetwork, match=r"^unknown network zzz; Known: alexnet, "):
        networks.get("zzz")


def test_two_networks_cannot_have_one_name():
    with pytest.raises(ValueError, match="fcn5: two networks of one name"):
        catalogue.network("fcn5", batches=(1,), learning_rate=0.1)(lambda: Builder((1,)))
    assert networks.get("fcn5").parameter_count == PARAMETERS["fcn5"]


def test_the_builder_names_layers_by_operation_and_number():
    net = Builder((4,))
    assert [net.dense(3), net.sigmoid(), net.dense(2)] == ["dense1", "sigmoid1", "dense2"]
    assert [layer.inputs for layer in net.layers] == [("input",), ("dense1",), ("sigmoid1",)]


def test_a_layer_goes_behind_the_one_that_it_is_told():
    net = Builder((4,))
    first = net.dense(3)
    net.dense(2)
    net.dense(5, after=first)
    assert (net.layers[-1].inputs, net.layers[-1].parameters["weight"]) == (("dense1",), (5, 3))


def test_an_addition_of_two_shapes_names_both():
    net = Builder((4,))
    left, right = net.dense(3), net.dense(2)
    with pytest.raises(ValueError, match=r"add: dense1 \(3,\) and dense2 \(2,\) differ in shape"):
        net.add(left, right)
    assert net.add(left, left) == "add1"


def test_windows_larger_than_the_image_leave_an_empty_output():
    net = Builder((3, 4, 4))
    with pytest.raises(ValueError, match=r"conv2d1: output shape \(2, 0, 0\) is empty"):
        net.conv(2, kernel=5)
    assert net.shapes[net.conv(2, kernel=4)] == (2, 1, 1)


def test_an_embedding_needs_words():
    with pytest.raises(ValueError, match=r"embedding: the network's input is not words \(vocabulary is 0\)"):
        Builder((4,)).embedding(3)
    net = Builder((4,), vocabulary=7)
    assert net.shapes[net.embedding(3)] == (4, 3)


@pytest.mark.parametrize("op", IMAGE_OPERATIONS)
def test_an_operation_on_images_refuses_a_vector(op):
    with pytest.raises(ValueError, match=rf"{op} after input: needs C H W, has \(4,\)"):
        IMAGE_OPERATIONS[op](Builder((4,)))
    net = Builder((2, 4, 4))
    IMAGE_OPERATIONS[op](net)
    assert net.layers[0].op == op


@pytest.mark.parametrize("wrong, complaint", [
    (lambda net: net.dense(5), "flatten the image first"),
    (lambda net: net.lstm(5), "needs T F"),
    (lambda net: net.relu(after="x"), "no layer x to go on from"),
    (lambda net: net.add("input", "y"), "no layer y to go on from"),
    (lambda net: net.pad_channels(-2), "-2 extra channels"),
    (lambda net: net.max_pool(3, 0), "stride 0"),
    (lambda net: net.max_pool(1, 9, padding=1, ceil=True), "the last begins beyond the image"),
    (lambda net: net.conv(4, kernel=1, groups=2), "2 groups for 3 channels and 4 filters"),
    (lambda net: net.lrn(size=4), "4 channels have none in their middle"),
    (lambda net: net.concat(["input", net.max_pool(2, 2)]), r"concat: input \(3, 8, 8\), max_pool1 \(3, 4, 4\) differ in size"),
])
def test_a_layer_that_cannot_follow_an_image_is_refused_with_the_reason(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrong(Builder(input_shape=(3, 8, 8)))


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_page_of_networks_has_each_with_its_parameters(name):
    page = (Path(__file__).parents[2] / "docs/reference/networks.md").read_text(encoding="utf-8")
    row = next((line for line in page.splitlines() if " | " in line and f"`{name}`" in line), "")
    assert row, f"docs/reference/networks.md has no row for {name}"
    assert row.endswith(f" | {PARAMETERS[name]:,} | {networks.get(name).learning_rate}")


def test_a_llama_block_has_seven_products_without_biases_and_its_heads_share_four():
    network = networks.get("llama_1b")
    assert [layer.op for layer in network.layers[1:15]] == [
        "rms_norm", "linear", "rotary", "linear", "rotary", "linear", "grouped_attention", "linear",
        "add", "rms_norm", "linear", "linear", "swiglu", "linear"]
    assert [layer.output_shape[1] for layer in network.layers if layer.op == "linear"] == [
        2048, 256, 256, 2048, 5632, 5632, 2048] * 22 + [32000]
    assert network.layer("grouped_attention1").inputs == ("rotary1", "rotary2", "linear3")
    assert network.layer("grouped_attention1").attributes == {"heads": 32, "groups": 4, "causal": True}
    assert {name.partition(".")[2] for name in network.parameter_shapes} == {"weight", "scale"}


def test_heads_that_do_not_fit_are_refused():
    net = Builder(input_shape=(4,), vocabulary=7)
    wide, narrow = net.embedding(12), net.linear(8)
    with pytest.raises(ValueError, match=r"grouped_attention after embedding1: .* of 3 heads"):
        net.grouped_attention(3, wide, narrow, net.linear(4, after=wide))
    with pytest.raises(ValueError, match=r"grouped_attention after embedding1: .* of 3 heads"):
        net.grouped_attention(3, wide, narrow, narrow)
    with pytest.raises(ValueError, match="rotary after embedding1: 12 features are not pairs of 5 heads"):
        net.rotary(5, after=wide)
    with pytest.raises(ValueError, match=r"swiglu: embedding1 .* and linear1 .* differ in shape"):
        net.swiglu(wide, narrow)
    few = net.linear(4, after=wide)
    assert net.shapes[net.grouped_attention(3, wide, few, few)] == (4, 12)


def test_gpt2_reads_its_own_table_again_and_only_earlier_words():
    network = networks.get("gpt2_small")
    assert (network.layers[-1].attributes["tied"], network.layers[-1].parameters) == ("embedding1", {})
    assert {layer.attributes["causal"] for layer in network.layers if layer.op == "attention"} == {True}
    assert {layer.attributes["causal"] for layer in networks.get("vit_b16").layers if layer.op == "attention"} == {False}


@pytest.mark.parametrize(("wrong", "complaint"), [
    (lambda net: net.attention(4, causal=True), "attention after embedding1: 6 features are not queries, keys and values of 4 heads"),
    (lambda net: net.tied_dense("input"), "tied_dense after embedding1: input is no embedding of 6 features"),
    (lambda net: net.layer_norm(1e-5, after=net.first_token()), r"layer_norm after first_token1: needs T F, has \(6,\)"),
])
def test_a_layer_that_cannot_follow_tokens_is_refused_with_the_reason(wrong, complaint):
    net = Builder(input_shape=(5,), vocabulary=11)
    net.embedding(6)
    with pytest.raises(ValueError, match=complaint):
        wrong(net)


@pytest.mark.parametrize(("name", "tokens"), [("gpt2_small", 32), ("vit_b16", 17)])
def test_a_short_network_has_the_same_tensors_but_for_fewer_positions(name, tokens):
    whole = networks.get(name)
    short = networks.short_of(whole)
    assert short.name == f"{name}_short" and networks.short_of(short) is short
    assert short.parameter_shapes == {**whole.parameter_shapes, "positions1.weight": (tokens, 768)}
    assert networks.short_of(networks.get("lstm32")) is networks.get("lstm32")
