"""OpenVINO on the CPU, from an ONNX file that `runners.onnx.network_file` writes.

As it comes, it answers a float32 network in bf16 on a processor that has bf16. So the precision is
named in every tier, and what the compiled network says that it runs is part of the proof.
"""

import numpy as np
import openvino as ov

from runners import int8, protocol
from runners.inference import Engine, flat
from runners.onnx import int8_file, network_file
from runners.protocol import Unsupported

TYPES = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
PRECISIONS = {name: precision for precision, name in TYPES.items()}
# Layers of a compiled network that are products of weights, and what they read if it is integers.
PRODUCTS, INTEGERS = ("Convolution", "FullyConnected"), ("u8", "i8")
HINT = "INFERENCE_PRECISION_HINT"
TIERS = {"stock": [], "compiled": [], "tuned": [],
         "uncompiled": "OpenVINO compiles every network"}


class OpenVino(Engine):
    @staticmethod
    def describe():
        return {"release": ov.__version__.split("-")[0],
                "device_name": ov.Core().get_property("CPU", "FULL_DEVICE_NAME"),
                "libraries": {"build": ov.__version__}}

    def __init__(self, task, arrays):
        core = ov.Core()
        refuse_what_is_missing(task, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        self.task = task
        self.settings = protocol.settings_of(task, TIERS)
        model, self.parameters_held = self.model_of(arrays)
        self.model_bytes = model.ByteSize()
        read = core.read_model(model.SerializeToString())
        self.compiled = core.compile_model(read, "CPU", self.options())
        self.request = self.compiled.create_infer_request()

    def model_of(self, arrays):
        """Return the model that OpenVINO reads, and how many trained numbers it holds."""
        task = self.task
        return (int8_file if task.precision == "int8" else network_file).model_of(
            task.network, arrays, task.batch)

    def options(self):
        """Return the properties of the compiled network: threads and precision.

        Of INT8 it is that of what the file leaves in floating point.
        """
        return {"INFERENCE_NUM_THREADS": self.task.threads,
                HINT: TYPES.get(self.task.precision, "f32")}

    def parameter_count(self):
        return self.parameters_held

    def arithmetic(self):
        if self.task.precision == "int8":
            return int8.arithmetic(self.task.network, self.float_products())
        name = self.compiled.get_property(HINT).get_type_name()
        return PRECISIONS.get(name, name)

    def float_products(self):
        """Count the products of floating point in what the compiled network says that it runs.

        It does not say what is inside a kernel that it has fused of several layers.
        """
        said = [node.get_rt_info() for node in self.compiled.get_runtime_model().get_ops()]
        return sum(info["layerType"].astype(str) in PRODUCTS
                   and info["runtimePrecision"].astype(str) not in INTEGERS for info in said)

    def feed(self, inputs, targets, residence):
        self.ring = [ov.Tensor(np.ascontiguousarray(batch)) for batch in inputs]
        self.position = 0

    def step(self):
        self.request.infer([self.next_batch()])

    # A call returns when its outputs are there.
    synchronize = staticmethod(protocol.nothing)

    def output(self, rows):
        return flat(self.request.get_output_tensor().data)[rows]


def refuse_what_is_missing(task, capabilities):
    protocol.refuse_unknown(task, (*TYPES, "tf32", "int8"))
    if task.device != "cpu":
        raise Unsupported("OpenVINO runs on processors and Intel's GPUs")
    if task.precision not in ("fp32", "int8") and task.precision.upper() not in capabilities:
        raise Unsupported(f"{task.precision}: OpenVINO says that this processor has "
                          f"{', '.join(capabilities)}")
