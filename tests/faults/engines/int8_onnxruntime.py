"""ONNX Runtime in INT8, each class with one fault of quantisation."""

import numpy as np
import onnxruntime as ort
from onnx import numpy_helper

from runners import int8
from runners.onnx import int8_file, network_file
from runners.onnxruntime import inference


class Float(inference.OnnxRuntime):
    """The network itself, and a word that it is INT8."""

    def model_of(self, arrays):
        return network_file.model_of(self.task.network, arrays, self.task.batch)

    def arithmetic(self):
        return "int8"


class Simulated(inference.OnnxRuntime):
    """Numbers are rounded to INT8's levels, and products of float32 read them."""

    def options(self):
        options = super().options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        return options


class FloatHead(inference.OnnxRuntime):
    """The last layer, a language model's largest product, reads and multiplies float32."""

    def model_of(self, arrays):
        original, last = int8_file.OPERATIONS, self.task.network["layers"][-1]["op"]

        def head(graph, layer, name, x):
            in_float = layer is graph.network["layers"][-1]
            return (network_file.OPERATIONS if in_float else original)[last](graph, layer, name, x)

        graph = int8_file.Graph(self.task.network, arrays, self.task.batch)
        return network_file.model_from(graph, {**original, last: head})


class Scales(inference.OnnxRuntime):
    """Scales and zero points that `changed` returns."""

    def model_of(self, arrays):
        names = [name for name in arrays if name.endswith("." + int8.QUANTISED)]
        return int8_file.model_of(self.task.network, {**arrays, **self.changed(arrays, names)},
                                  self.task.batch)


class RandomScales(Scales):
    """As trtexec times INT8 without a calibration."""

    def changed(self, arrays, names):
        draw = np.random.default_rng(1)
        return {name: np.array([draw.uniform(0.001, 1), arrays[name][1]], np.float32)
                for name in names}


class WiderScale(Scales):
    """One tensor's scale is off by a tenth."""

    def changed(self, arrays, names):
        return {names[3]: arrays[names[3]] * np.array([1.1, 1], np.float32)}


class OtherZeroPoint(inference.OnnxRuntime):
    """One tensor is stored with a zero point that is off by one from the one it is read with."""

    def model_of(self, arrays):
        model, count = super().model_of(arrays)
        node = [node for node in model.graph.node if node.op_type == "QuantizeLinear"][-1]
        zero = next(each for each in model.graph.initializer if each.name == node.input[2])
        other = numpy_helper.to_array(zero) + np.uint8(1)
        model.graph.initializer.append(numpy_helper.from_array(other, "other"))
        node.input[2] = "other"
        return model, count
