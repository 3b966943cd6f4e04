"""ONNX Runtime on CUDA: its provider's options, and inputs and outputs that lie on the GPU.

A CUDA graph reads and writes the same memory in every call. So each batch of the ring has a graph
of its own, and all write into one array of outputs.
"""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from runners.onnx import network_file

GRAPH, NHWC = "CUDA graph", "prefer_nhwc"


def load_libraries(module):
    """Load CUDA and cuDNN where pip has put them beside ONNX Runtime, as its documentation says."""
    if hasattr(module, "preload_dlls"):
        module.preload_dlls(directory="")


def tuned(task):
    """Return the settings of `tuned`. N H W C kernels exist in float32 and fp16."""
    images = len(task.network["input_shape"]) == 3 and task.precision != "bf16"
    return [GRAPH, NHWC] if images else [GRAPH]


def provider_options(task, settings):
    """Return the provider's options. TF32 is its default for float32 products."""
    return {"use_tf32": int(task.precision == "tf32"), "enable_cuda_graph": int(GRAPH in settings),
            "prefer_nhwc": int(NHWC in settings)}


class Bindings:
    """The batches that lie on the GPU, and the one array into which their outputs go."""

    def __init__(self, session, memory, shape, first):
        self.session, self.memory, self.next = session, memory, first
        self.answer = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, memory, 0)
        self.shape, self.chooser = shape, None

    def bind(self, batch, with_graph):
        """Place a batch; return what runs the session on it."""
        options = ort.RunOptions()
        if with_graph:
            options.add_run_config_entry("gpu_graph_id", str(self.next))
            self.next += 1
        return Bound(self, ort.OrtValue.ortvalue_from_numpy(batch, self.memory, 0), options)

    def rows(self, rows):
        """Return some rows of the outputs: a small session chooses them where they lie."""
        if self.chooser is None:
            self.chooser = ort.InferenceSession(chooser_of(self.shape),
                                                providers=self.session.get_providers()[:1])
        binding = self.chooser.io_binding()
        binding.bind_ortvalue_input("all", self.answer)
        binding.bind_cpu_input("rows", np.array(rows, np.int64))
        binding.bind_output("chosen", "cpu")
        self.chooser.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]


class Bound:
    """A batch that lies on the GPU, bound to the session's input."""

    def __init__(self, bindings, inputs, options):
        self.session, self.inputs, self.options = bindings.session, inputs, options
        self.binding = bindings.session.io_binding()
        self.binding.bind_ortvalue_input(network_file.INPUT, inputs)
        self.binding.bind_ortvalue_output(network_file.OUTPUT, bindings.answer)

    def run(self):
        self.session.run_with_iobinding(self.binding, self.options)


def chooser_of(shape):
    """Return the bytes of an ONNX model that gathers rows of outputs of this shape."""
    kinds = {"all": (TensorProto.FLOAT, shape), "rows": (TensorProto.INT64, ["n"]),
             "chosen": (TensorProto.FLOAT, ["n", shape[-1]])}
    values = {name: helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()}
    flat = helper.make_tensor("flat", TensorProto.INT64, [2], [-1, shape[-1]])
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["all", "flat"], ["matrix"]),
         helper.make_node("Gather", ["matrix", "rows"], ["chosen"], axis=0)],
        "rows", [values["all"], values["rows"]], [values["chosen"]], [flat])
    opset = [helper.make_opsetid("", network_file.OPSET)]
    return helper.make_model(graph, opset_imports=opset,
                             ir_version=network_file.IR_VERSION).SerializeToString()
