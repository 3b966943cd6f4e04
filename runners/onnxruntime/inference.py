"""ONNX Runtime on the CPU and on CUDA, from an ONNX file that `runners.onnx_file` writes.

`stock` is its documentation's first session, whose graph optimisations are on by default.
"""

import os
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

from runners import int8, onnx_file, onnx_int8, protocol
from runners.inference import Engine, Inference
from runners.protocol import Unsupported

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# The number format of the file. TF32 is how CUDA's products read float32.
KINDS = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16", "fp16": "fp16"}
PRECISIONS = (*KINDS, "int8")
# Its operators whose products are of integers.
INTEGER_PRODUCTS = {"QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat"}
TIERS = {"stock": [], "compiled": [], "tuned": [],
         "uncompiled": "ONNX Runtime without its optimisations is for finding errors"}


def session():
    return Inference(OnnxRuntime)


class OnnxRuntime(Engine):
    @staticmethod
    def describe():
        return {"release": ort.__version__, "device_name": protocol.processor_name(),
                "libraries": {"providers": ort.get_available_providers()}}

    def __init__(self, task, arrays):
        refuse_what_is_missing(task)
        self.task = task
        self.settings = protocol.settings_of(task, TIERS)
        model, self.parameters_held = self.model_of(arrays)
        self.model_bytes = model.ByteSize()
        options = self.options()
        with tempfile.TemporaryDirectory() as folder:
            if task.precision == "int8":
                options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
            self.session = ort.InferenceSession(
                model.SerializeToString(), options, providers=[provider(task)])
            self.said = arithmetic_of(task, options.optimized_model_filepath)
        if (found := self.session.get_providers())[0] != PROVIDERS[task.device]:
            raise Unsupported(f"{PROVIDERS[task.device]} could not be loaded; ONNX Runtime fell "
                              f"back to {', '.join(found)}")
        self.outputs = None

    def model_of(self, arrays):
        """Return the model that the session reads, and how many trained numbers it holds."""
        task = self.task
        if task.precision == "int8":
            return onnx_int8.model_of(task.network, arrays, task.batch)
        return onnx_file.model_of(task.network, arrays, task.batch, KINDS[task.precision])

    def options(self):
        options = ort.SessionOptions()
        if self.task.device == "cpu":
            options.intra_op_num_threads, options.inter_op_num_threads = self.task.threads, 1
        return options

    def parameter_count(self):
        return self.parameters_held

    def arithmetic(self):
        return self.said

    def feed(self, inputs, targets, residence):
        self.ring = [np.ascontiguousarray(batch) for batch in inputs]
        self.on_device = self.task.device == "cuda" and residence == "device"
        if self.on_device:
            self.ring = [self._bound(batch) for batch in self.ring]
        self.position = 0

    def step(self):
        batch = self.next_batch()
        if self.on_device:
            self.session.run_with_iobinding(batch)
            self.outputs = batch
        else:
            [self.outputs] = self.session.run(None, {onnx_file.INPUT: batch})

    # A run returns when its outputs are there.
    synchronize = staticmethod(protocol.nothing)

    def output(self):
        return self.outputs.copy_outputs_to_cpu()[0] if self.on_device else self.outputs

    def _bound(self, batch):
        """Bind a batch that lies on the GPU, and outputs that stay there."""
        binding = self.session.io_binding()
        binding.bind_ortvalue_input(onnx_file.INPUT, ort.OrtValue.ortvalue_from_numpy(
            batch, "cuda", 0))
        binding.bind_output(onnx_file.OUTPUT, "cuda")
        return binding


def arithmetic_of(task, optimised):
    """Return the arithmetic of the session's optimised graph: "" unless the task is in INT8."""
    if task.precision != "int8":
        return ""
    nodes = onnx.load(optimised).graph.node
    integers = sum(node.op_type in INTEGER_PRODUCTS for node in nodes)
    return int8.arithmetic(task.network, len(int8.products(task.network)) - integers)


def refuse_what_is_missing(task):
    protocol.refuse_unknown(task, PRECISIONS)
    if PROVIDERS[task.device] not in ort.get_available_providers():
        raise Unsupported(f"{PROVIDERS[task.device]}: this build of ONNX Runtime has "
                          f"{', '.join(ort.get_available_providers())}")
    if task.device == "cuda" and task.precision == "int8":
        raise Unsupported("ONNX Runtime's INT8 kernels here are those of processors")
    if task.device == "cpu" and task.precision not in ("fp32", "int8"):
        raise Unsupported(f"{task.precision} on a CPU: ONNX Runtime's kernels there compute in "
                          "fp32, and cast what a file stores in fewer bits")


def provider(task):
    """Name the provider; on CUDA say whether float32 products may take TF32, its default."""
    if task.device == "cpu":
        return PROVIDERS["cpu"]
    return PROVIDERS["cuda"], {"use_tf32": int(task.precision == "tf32")}
