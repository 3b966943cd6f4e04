"""OpenVINO that reads the network itself where INT8 was asked for."""

from runners.onnx import network_file
from runners.openvino import inference


class Float(inference.OpenVino):
    def model_of(self, arrays):
        return network_file.model_of(self.task.network, arrays, self.task.batch)
