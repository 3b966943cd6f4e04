"""ONNX Runtime's path for CUDA with the provider of processors in CUDA's place.

`Silent` computes in fp32 whatever was asked for. `FallsBack` has a provider without any kernels.
"""

import onnxruntime as ort

from runners.onnx import network_file
from runners.onnxruntime import inference


class OnCpu(inference.OnnxRuntime):
    memory, stand_in = "cpu", "CPUExecutionProvider"

    def refuse_what_is_missing(self, task):
        """The provider is there."""

    def options(self):
        return ort.SessionOptions()

    def session_of(self, options):
        inference.PROVIDERS["cuda"] = self.stand_in
        return super().session_of(options)

    def provider(self):
        # Options that this provider has not would be refused.
        assert super().provider()[1].keys() == {"use_tf32", "enable_cuda_graph", "prefer_nhwc"}
        return self.stand_in


class Silent(OnCpu):
    def model_of(self, arrays):
        return network_file.model_of(self.task.network, arrays, self.task.batch)


class FallsBack(OnCpu):
    """Operators may not run on the processor, and all would."""

    stand_in = "AzureExecutionProvider"

    def options(self):
        return inference.OnnxRuntime.options(self)
