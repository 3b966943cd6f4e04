"""Names that the profilers of five frameworks gave to the operators of a CNN and an LSTM, and what they compute."""

import pytest

from analysis.traces.operators import WRAPPER, classify

NAMES = {
    "matrix product": [
        "aten::mm", "aten::addmm", "aten::linear", "aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "_MklMatMul",
        "_MklNativeFusedMatMul", "dot_general ynn_fusion", "transpose dot", "FullyConnected", "_backward_FullyConnected", "RNN",
        "_backward_RNN", "matmul", "matmul_grad", "rnn_grad"],
    "convolution": [
        "aten::mkldnn_convolution", "aten::convolution_backward", "_MklNativeFusedConv2D", "_MklNativeConv2DBackpropInput",
        "_MklNativeConv2DBackpropFilterWithBias", "conv_general_dilated ynn_fusion", "convolution ynn_fusion", "Convolution",
        "_backward_Convolution", "conv2d", "conv2d_grad"],
    "reduction": [
        "aten::max_pool2d_with_indices_backward", "aten::_log_softmax", "aten::nll_loss_forward", "aten::sum",
        "aten::native_batch_norm", "_MklNativeMaxPoolGrad", "SparseSoftmaxCrossEntropyWithLogits", "BiasAddGrad", "Sum",
        "reduce_window_max wrapped_reduce-window", "select_and_scatter wrapped_scatter", "reduce_sum ynn_fusion",
        "_backward_Pooling", "log_softmax", "pick", "mean", "pool2d_grad", "cross_entropy_with_softmax_grad", "mean_all",
        "_FusedBatchNormEx"],
    "element-wise": [
        "aten::add_", "aten::clamp_min", "aten::threshold_backward", "aten::fill_", "aten::embedding_dense_backward", "Relu",
        "ReluGrad", "AddV2", "TanhGrad", "sub multiply_subtract_fusion", "add copy_add_fusion", "wrapped_broadcast.3",
        "scatter-add wrapped_scatter", "Activation", "_backward_Activation", "_backward_mul_scalar", "_zeros", "add_grad",
        "relu_grad", "full", "embedding"],
    "layout": [
        "aten::copy_", "aten::cat", "_MklTranspose", "ConcatV2", "TensorListPushBack", "Split", "transpose_copy_fusion.20",
        "copy.68", "transpose transpose_copy_fusion", "dynamic_update_slice bitcast_dynamic-update-slice_fusion", "SwapAxis",
        "_rnn_param_concat", "_backward_reshape", "transpose_grad"],
    "optimiser": [
        "Optimizer.step#SGD.step", "aten::_foreach_add_", "sgd/Mul", "sgd/AssignAddVariableOp", "multi_sgd_mom_update", "momentum"],
    "copy": [
        "DevicePutWithSharding", "CopyCPU2CPU"],
    WRAPPER: [
        "ConvolutionBackward0", "autograd::engine::evaluate_function: AddmmBackward0", "torch::autograd::AccumulateGrad", "detach",
        "Optimizer.zero_grad#SGD.zero_grad", "aten::empty", "aten::t", "aten::_to_copy", "aten::_unsafe_view", "aten::resolve_conj", "aten::_nnpack_available",
        "ExecutorState::Process", "EagerLocalExecute: __inference_train_step_370", "KernelAndDeviceFunc::Run", "ReadVariableOp",
        "train_step", "TFE_Py_ExecuteCancelable", "ThreadpoolListener::Record", "ThunkExecutor::Execute (wait for completion)",
        "PjitFunction(train_step)", "while while", "Wait for donation holds", "DeleteVariable"],
    "unclassified": [
        "a_new_operator", "aten::fold_together"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_an_operator_is_of_its_class(kind, name):
    assert classify(name) == kind
