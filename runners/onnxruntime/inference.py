"""ONNX Runtime on the CPU and on CUDA, from an ONNX file that `runners.onnx.network_file` writes.

`stock` is its documentation's first session, whose graph optimisations are on by default. On CUDA
`tuned` adds what its page on performance names for fixed shapes (`runners.onnxruntime.cuda`).
"""

import json
import os
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

from runners import int8, protocol
from runners.inference import Engine, flat
from runners.onnx import int8_file, network_file
from runners.onnxruntime import bf16, cuda
from runners.protocol import Unsupported

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# The number format of the file. TF32 is how CUDA's products read float32.
KINDS = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16"}
PRECISIONS = (*KINDS, "bf16", "int8")
# Its operators whose products are of integers.
INTEGER_PRODUCTS = {"QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat"}
# The first calls of a session take its memory: on a CPU the very first took 1.8 times as long.
WARM_UP_CALLS = 4
# What a session raises where its provider cannot run a graph.
REFUSALS = ("NotImplemented", "Fail")


class OnnxRuntime(Engine):
    memory = "cuda"

    @staticmethod
    def describe():
        return {"release": ort.__version__, "device_name": protocol.processor_name(),
                "libraries": {"providers": ort.get_available_providers()}}

    def __init__(self, task, arrays):
        self.refuse_what_is_missing(task)
        self.task = task
        self.settings = protocol.settings_of(task, tiers(task))
        model, self.parameters_held = self.model_of(arrays)
        self.model_bytes = model.ByteSize()
        self.model = model.SerializeToString()
        options = self.options()
        with tempfile.TemporaryDirectory() as folder:
            if task.precision == "int8":
                options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
            self.session = self.session_of(options)
            self.said = arithmetic_of(task, options.optimized_model_filepath)
        self.outputs = self.graphs = None

    def model_of(self, arrays):
        """Return the model that the session reads, and how many trained numbers it holds."""
        task = self.task
        if task.precision in ("int8", "bf16"):
            form = int8_file if task.precision == "int8" else bf16
            return form.model_of(task.network, arrays, task.batch)
        return network_file.model_of(task.network, arrays, task.batch, KINDS[task.precision])

    def options(self):
        options = ort.SessionOptions()
        if self.task.device == "cpu":
            options.intra_op_num_threads, options.inter_op_num_threads = self.task.threads, 1
        else:
            # Else operators without a kernel of CUDA would run on the processor, in silence.
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return options

    def provider(self):
        """Return the provider as a session takes it."""
        if self.task.device == "cpu":
            return PROVIDERS["cpu"]
        return PROVIDERS["cuda"], cuda.provider_options(self.task, self.settings)

    def session_of(self, options):
        """Open a session. Raises Unsupported in ONNX Runtime's words."""
        wanted = PROVIDERS[self.task.device]
        try:
            opened = ort.InferenceSession(self.model, options, providers=[self.provider()],
                                          enable_fallback=0)
        except Exception as error:
            if type(error).__name__ not in REFUSALS:
                raise
            raise Unsupported(f"{wanted}: {str(error).strip().splitlines()[0]}") from error
        if (found := opened.get_providers())[0] != wanted:
            raise Unsupported(f"{wanted} could not be loaded; ONNX Runtime fell back to "
                              f"{', '.join(found)}")
        return opened

    def parameter_count(self):
        return self.parameters_held

    def arithmetic(self):
        return self.said

    def feed(self, inputs, targets, residence):
        self.ring = [np.ascontiguousarray(batch) for batch in inputs]
        self.on_device = self.task.device == "cuda" and residence == "device"
        # The graphs of earlier batches stay: their numbers are not given again.
        first = self.graphs.next if self.graphs else 1
        self.graphs = None
        if self.on_device or cuda.GRAPH in self.settings:
            shape = [self.task.batch, *self.task.network["layers"][-1]["output_shape"]]
            self.graphs = cuda.Bindings(self.session, self.memory, shape, first)
            placed = self.ring if self.on_device else [np.zeros_like(self.ring[0])]
            placed = [self.graphs.bind(batch, cuda.GRAPH in self.settings) for batch in placed]
            self.ring, self.fixed = (placed, None) if self.on_device else (self.ring, placed[0])
        self.position = 0

    def step(self):
        batch = self.next_batch()
        if self.on_device:
            batch.run()
        elif self.graphs:
            self.fixed.inputs.update_inplace(batch)
            self.fixed.run()
            self.outputs = self.graphs.answer.numpy()
        else:
            [self.outputs] = self.session.run(None, {network_file.INPUT: batch})

    # A run returns when its outputs are there.
    synchronize = staticmethod(protocol.nothing)

    def output(self, rows):
        return self.graphs.rows(rows) if self.on_device else flat(self.outputs)[rows]

    def profile(self, run):
        """Profile a session of the same options: each node of the optimised graph is a span."""
        options, timed = self.options(), self.session
        with tempfile.TemporaryDirectory() as folder:
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(folder, "profile")
            self.session = self.session_of(options)
            try:
                for _ in range(WARM_UP_CALLS):
                    self.step()
                run()
            finally:
                file, self.session = self.session.end_profiling(), timed
            with open(file) as text:
                return spans_of(json.load(text), WARM_UP_CALLS)

    def refuse_what_is_missing(self, task):
        protocol.refuse_unknown(task, PRECISIONS)
        if task.device == "cuda":
            cuda.load_libraries(ort)
        if PROVIDERS[task.device] not in ort.get_available_providers():
            raise Unsupported(f"{PROVIDERS[task.device]}: this build of ONNX Runtime has "
                              f"{', '.join(ort.get_available_providers())}")
        if task.device == "cuda" and task.precision == "int8":
            raise Unsupported("ONNX Runtime's INT8 kernels here are those of processors")
        if task.device == "cpu" and task.precision not in ("fp32", "int8"):
            raise Unsupported(f"{task.precision} on a CPU: ONNX Runtime's kernels there compute in "
                              "fp32, and cast what a file stores in fewer bits")


def tiers(task):
    """Return what each tier sets."""
    return {"stock": [], "compiled": [],
            "tuned": cuda.tuned(task) if task.device == "cuda" else [],
            "uncompiled": "ONNX Runtime without its optimisations is for finding errors"}


def arithmetic_of(task, optimised):
    """Return the arithmetic of the session's optimised graph: "" unless the task is in INT8."""
    if task.precision != "int8":
        return ""
    nodes = onnx.load(optimised).graph.node
    integers = sum(node.op_type in INTEGER_PRODUCTS for node in nodes)
    return int8.arithmetic(task.network, len(int8.products(task.network)) - integers)


def spans_of(events, calls):
    """Return (operator, thread, start, end) in seconds of a profile's kernels.

    Those of the first `calls` calls are left out.
    """
    first = sorted(event["ts"] for event in events if event["name"] == "model_run")[calls]
    return [(event["args"]["op_name"], event["tid"], event["ts"] * 1e-6,
             (event["ts"] + event["dur"]) * 1e-6)
            for event in events if event.get("cat") == "Node"
            and event["name"].endswith("_kernel_time") and event["ts"] >= first]
