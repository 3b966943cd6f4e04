"""The ONNX file of a network: ONNX's own evaluator computes what the reference computes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import networks
from harness.data import arrays
from runners.onnx import network_file
from runners.onnxruntime import bf16
from runners.protocol import Different, Task, Unsupported
from runners.reference import inference, runner

BATCH = 3
# ONNX's evaluator (1.23) normalises only as many channels as there are samples. The engines' own
# tests compare this network.
WRONG_LRN = "tiny_inception"


def trained(network):
    """Weights, and running statistics beside those of any batch."""
    draw = np.random.default_rng(1)
    moments = {}
    for layer in network.layers:
        if layer.op == "batch_norm":
            channels = layer.output_shape[0]
            moments[f"{layer.name}.mean"] = draw.normal(size=channels).astype(np.float32)
            moments[f"{layer.name}.variance"] = draw.uniform(0.5, 2, channels).astype(np.float32)
    return {**arrays.draw_weights(network, 1), **moments}


def evaluated(network, weights, kind="fp32"):
    inputs = arrays.synthetic_batches(network, BATCH, 1, 1)[0][0]
    if kind == "bf16":
        model, count = bf16.model_of(network.to_json(), weights, BATCH)
    else:
        model, count = network_file.model_of(network.to_json(), weights, BATCH, kind)
    assert count == network.parameter_count
    onnx.checker.check_model(model, full_check=True)
    built = runner.Runner(Task(network.to_json(), BATCH, dropout=False))
    inference.load(built, weights)
    exact = inference.outputs_of(built, inputs)
    found = ReferenceEvaluator(model).run(None, {network_file.INPUT: inputs})[0]
    assert found.dtype == np.float32
    return inference.errors_of(found, exact).max()


@pytest.mark.parametrize("name", [name for name in networks.names(small=True) if name != WRONG_LRN])
def test_the_evaluator_of_onnx_computes_the_network(name):
    network = networks.get(name)
    assert evaluated(network, trained(network)) < 2e-5


def test_a_file_in_fp16_is_off_by_what_fp16_rounds():
    network = networks.get("tiny_vit")
    assert 1e-4 < evaluated(network, trained(network), "fp16") < 0.02


@pytest.mark.parametrize("name", ["tiny_bottleneck", "tiny_cnn", "tiny_gpt", "tiny_resnet", "tiny_vit"])
def test_a_file_in_bf16_is_off_by_what_bf16_rounds(name):
    network = networks.get(name)
    assert 2e-3 < evaluated(network, trained(network), "bf16") < 0.2


def test_a_file_in_bf16_has_no_operator_that_cuda_has_not_in_bf16():
    network = networks.get("tiny_resnet")
    model, _ = bf16.model_of(network.to_json(), trained(network), BATCH)
    ops = [node.op_type for node in model.graph.node]
    assert "BatchNormalization" not in ops and ops.count("Conv") == sum(layer.op == "conv2d" for layer in network.layers)
    made = {node.output[0]: node for node in model.graph.node}
    assert "GlobalAveragePool" not in ops
    [pool] = [node for node in model.graph.node if node.op_type == "ReduceMean"]
    cast = made[pool.input[0]]
    assert (cast.op_type, cast.attribute[0].i) == ("Cast", TensorProto.FLOAT)
    with pytest.raises(Unsupported, match="layer lstm1: ONNX Runtime's CUDA provider has no LSTM in bf16"):
        network = networks.get("tiny_lstm")
        bf16.model_of(network.to_json(), trained(network), BATCH)


def test_every_published_network_has_an_operator_for_each_layer():
    ops = {layer.op for name in networks.names() for layer in networks.get(name).layers}
    assert ops <= set(network_file.OPERATIONS)


def test_a_number_format_that_onnx_has_not_is_unsupported():
    network = networks.get("tiny_fcn")
    with pytest.raises(Unsupported, match="precision 'bf16': an ONNX file of opset 21 has fp32, fp16"):
        network_file.model_of(network.to_json(), trained(network), BATCH, "bf16")


def test_a_shape_that_is_not_the_networks_is_different():
    network = networks.get("tiny_cnn")
    told = network.to_json()
    told["layers"][0]["output_shape"] = [4, 17, 17]
    with pytest.raises(Different, match="layer conv2d1: output"):
        network_file.model_of(told, trained(network), BATCH)
