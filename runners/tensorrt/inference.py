"""TensorRT on a GPU, from an ONNX file that `runners.onnx.network_file` writes. Never run here yet.

`stock` is what its quick start teaches: build an engine, then execute it on a stream. Networks are
strongly typed, so that the file says the precision; TF32 is a flag of the builder.
"""

import importlib

import numpy as np

from runners import protocol
from runners.inference import Engine, flat
from runners.onnx import network_file
from runners.protocol import Unsupported

# The number format of the file.
KINDS = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16"}
TIERS = {"stock": [], "compiled": [], "tuned": ["builder optimization level 5"],
         "uncompiled": "TensorRT compiles every network"}
MOST_LEVEL = 5


class TensorRt(Engine):
    LIBRARY = "tensorrt"

    @classmethod
    def describe(cls):
        return {"release": importlib.import_module(cls.LIBRARY).__version__}

    def __init__(self, task, arrays):
        protocol.refuse_unknown(task, tuple(KINDS))
        if task.device != "cuda":
            raise Unsupported("TensorRT runs on NVIDIA's GPUs")
        self.task, self.settings = task, protocol.settings_of(task, TIERS)
        self.trt = importlib.import_module(self.LIBRARY)
        self.cuda = importlib.import_module("cuda.bindings.runtime")
        model, self.parameters_held = network_file.model_of(
            task.network, arrays, task.batch, KINDS[task.precision])
        plan = self._plan(model.SerializeToString())
        self.model_bytes = plan.nbytes
        self.runtime = self.trt.Runtime(self.logger)
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        self.stream = self._call(self.cuda.cudaStreamCreate())
        kind = self.trt.nptype(self.engine.get_tensor_dtype(network_file.OUTPUT))
        self.answer = np.empty(tuple(self.engine.get_tensor_shape(network_file.OUTPUT)), kind)
        self.outputs = self._memory(self.answer.nbytes)
        self.context.set_tensor_address(network_file.OUTPUT, self.outputs)

    def _plan(self, model):
        """Compile an ONNX file. Raises Unsupported in the parser's words."""
        trt = self.trt
        self.logger = trt.Logger(trt.Logger.WARNING)
        builder = trt.Builder(self.logger)
        typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(typed)
        parser = trt.OnnxParser(network, self.logger)
        if not parser.parse(model):
            raise Unsupported(f"{self.LIBRARY}: {parser.get_error(0).desc()}")
        config = builder.create_builder_config()
        (config.set_flag if self.task.precision == "tf32" else config.clear_flag)(
            trt.BuilderFlag.TF32)
        if self.settings:
            config.builder_optimization_level = MOST_LEVEL
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise Unsupported(f"{self.LIBRARY} builds no engine of {self.task.network['name']}; "
                              "its log says why")
        return plan

    def parameter_count(self):
        return self.parameters_held

    def feed(self, inputs, targets, residence):
        self.on_device, self.position = residence == "device", 0
        ids = np.int64 if self.task.network["vocabulary"] else None
        kind = ids or self.trt.nptype(self.engine.get_tensor_dtype(network_file.INPUT))
        self.ring = [np.ascontiguousarray(batch, kind) for batch in inputs]
        # On the device each batch has its own memory.
        count = len(self.ring) if self.on_device else 1
        places = [self._memory(self.ring[0].nbytes) for _ in range(count)]
        if self.on_device:
            for place, batch in zip(places, self.ring, strict=True):
                self._copy(place, batch.ctypes.data, batch.nbytes, "HostToDevice")
            self.ring = places
        self.fixed = places[0]

    def step(self):
        batch = self.next_batch()
        place = batch if self.on_device else self.fixed
        if not self.on_device:
            self._copy(place, batch.ctypes.data, batch.nbytes, "HostToDevice")
        self.context.set_tensor_address(network_file.INPUT, place)
        if not self.context.execute_async_v3(int(self.stream)):
            raise RuntimeError(f"{self.LIBRARY}: the engine did not run; its log says why")
        if not self.on_device:
            self._fetch()

    def synchronize(self):
        self._call(self.cuda.cudaStreamSynchronize(self.stream))

    def output(self, rows):
        if self.on_device:
            self._fetch()
        self.synchronize()
        return flat(self.answer)[rows]

    def _fetch(self):
        self._copy(self.answer.ctypes.data, self.outputs, self.answer.nbytes, "DeviceToHost")

    def _memory(self, size):
        return self._call(self.cuda.cudaMalloc(size))

    def _copy(self, target, source, size, way):
        kind = getattr(self.cuda.cudaMemcpyKind, f"cudaMemcpy{way}")
        self._call(self.cuda.cudaMemcpyAsync(target, source, size, kind, self.stream))

    def _call(self, answer):
        """Return what a call of CUDA gives beside its error. Raises RuntimeError for an error."""
        error, *found = answer
        if int(error):
            raise RuntimeError(f"CUDA: {self.cuda.cudaGetErrorString(error)[1]!r}")
        return found[0] if found else None


class TensorRtForRtx(TensorRt):
    """The same interface under another name, for GeForce and RTX GPUs."""

    LIBRARY = "tensorrt_rtx"
