"""The engine for TensorRT with stand-ins for its library and for CUDA: no GPU has run it yet."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, load_from_string
from onnx.reference import ReferenceEvaluator

import networks
from harness.data import arrays
from runners.onnx import network_file
from runners.protocol import Task, Unsupported
from runners.reference import inference as reference
from runners.reference.runner import Runner
from runners.tensorrt.inference import TensorRt, TensorRtForRtx

BATCH = 2


class Memory:
    """CUDA's memory is the host's, and its stream has ended as soon as it is asked."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self):
        self.held, self.error = [], 0

    def cudaStreamCreate(self):
        return self.error, 1

    def cudaStreamSynchronize(self, stream):
        return (self.error,)

    def cudaMalloc(self, size):
        self.held.append(np.zeros(size, np.uint8))
        return self.error, self.held[-1].ctypes.data

    def cudaMemcpyAsync(self, target, source, size, kind, stream):
        ctypes.memmove(target, source, size)
        return (self.error,)

    def cudaGetErrorString(self, error):
        return 0, b"out of memory"


class Model:
    """What the builder makes of a file, and an execution of it."""

    def __init__(self, model):
        self.model, self.places = load_from_string(model), {}
        self.values = {value.name: value.type.tensor_type for value in (*self.model.graph.input, *self.model.graph.output)}

    def get_tensor_dtype(self, name):
        return self.values[name].elem_type

    def get_tensor_shape(self, name):
        return [each.dim_value for each in self.values[name].shape.dim]

    def create_execution_context(self):
        return self

    def set_tensor_address(self, name, place):
        self.places[name] = place

    def execute_async_v3(self, stream):
        shape = self.get_tensor_shape(network_file.INPUT)
        given = np.ctypeslib.as_array(ctypes.cast(self.places[network_file.INPUT], ctypes.POINTER(ctypes.c_float)), shape)
        [found] = ReferenceEvaluator(self.model).run(None, {network_file.INPUT: given})
        found = np.ascontiguousarray(found, np.float32)
        ctypes.memmove(self.places[network_file.OUTPUT], found.ctypes.data, found.nbytes)
        return True


class Plan(bytes):
    @property
    def nbytes(self):
        return len(self)


def library(said, parses=True):
    """TensorRT's names; `said` hears of the builder's flags."""
    def note(word):
        return lambda flag: said.append(f"{word} {flag}")

    built = []
    return SimpleNamespace(
        __version__="11.4.0.106", Logger=type("Logger", (), {"WARNING": 1, "__init__": lambda self, level: None}),
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=1), BuilderFlag=SimpleNamespace(TF32="TF32"),
        nptype=lambda kind: {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}[kind],
        Builder=lambda logger: SimpleNamespace(
            create_network=lambda flags: said.append(f"flags {flags}"),
            create_builder_config=lambda: SimpleNamespace(set_flag=note("set"), clear_flag=note("clear")),
            build_serialized_network=lambda network, config: Plan(built[0]) if built[0] else None),
        OnnxParser=lambda network, logger: SimpleNamespace(
            parse=lambda model: built.append(model) or parses, get_error=lambda number: SimpleNamespace(desc=lambda: "no operator Loop")),
        Runtime=lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: Model(bytes(plan))))


@pytest.fixture
def installed(monkeypatch):
    def put(parses=True):
        said, memory = [], Memory()
        for name in ("tensorrt", "tensorrt_rtx"):
            monkeypatch.setitem(sys.modules, name, library(said, parses))
        monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", memory)
        return said, memory

    return put


NETWORK = networks.get("tiny_fcn")
WEIGHTS = arrays.draw_weights(NETWORK, 1)
INPUTS, _ = arrays.synthetic_batches(NETWORK, BATCH, 3, seed=1)


def task(**changes):
    return Task(NETWORK.to_json(), BATCH, "cuda", **changes)


@pytest.mark.parametrize("engine", [TensorRt, TensorRtForRtx])
@pytest.mark.parametrize("residence", ["device", "host"])
def test_each_call_answers_the_next_batch_wherever_it_lies(installed, engine, residence):
    said, _ = installed()
    made = engine(task(), WEIGHTS)
    assert (made.parameter_count(), made.describe()) == (NETWORK.parameter_count, {"release": "11.4.0.106"})
    assert said == ["flags 2", "clear TF32"]
    exact = Runner(Task(NETWORK.to_json(), BATCH, dropout=False))
    reference.load(exact, WEIGHTS)
    made.feed(INPUTS, None, residence)
    for call in range(4):
        made.step()
        made.synchronize()
        wanted = reference.outputs_of(exact, INPUTS[call % 3])
        np.testing.assert_allclose(made.output([0, 1]), wanted, rtol=1e-4, atol=1e-5)


def test_tf32_is_the_builder_s_flag(installed):
    said, _ = installed()
    TensorRt(task(precision="tf32"), WEIGHTS)
    assert said == ["flags 2", "set TF32"]


def test_what_it_cannot_run_is_refused_in_its_words(installed):
    installed(parses=False)
    with pytest.raises(Unsupported, match="tensorrt: no operator Loop"):
        TensorRt(task(), WEIGHTS)
    with pytest.raises(Unsupported, match="precision 'bf16'"):
        TensorRt(task(precision="bf16"), WEIGHTS)
    with pytest.raises(Unsupported, match="TensorRT runs on NVIDIA's GPUs"):
        TensorRt(Task(NETWORK.to_json(), BATCH), WEIGHTS)


def test_an_error_of_cuda_is_raised(installed):
    _, memory = installed()
    made = TensorRt(task(), WEIGHTS)
    memory.error = 2
    with pytest.raises(RuntimeError, match="CUDA: b'out of memory'"):
        made.feed(INPUTS, None, "device")
