"""Every engine gives the reference's outputs, in each of its tiers; its precision is its own."""

import pytest

import networks
from harness.environments import recipes
from harness.inference.judge import SATURATES, InferenceJudge
from harness.inference.reference import Reference
from harness.machine import hardware
from harness.plan.planner import Trial
from harness.workers import launch
from harness.workers.alive import LiveWorkers
from harness.workers.worker import Unsupported
from runners import int8
from tests.conftest import environment_of, needs_avx512, needs_vnni
from tests.ready import inference_verdict
from tests.slow import slow, slow_but

ENGINES = ("pytorch", "tensorflow", "jax", "onnxruntime", "openvino")
# How an engine with INT8 kernels adds.
INT8 = {name: recipes.load(name).int8_summands for name in ("onnxruntime", "openvino")}
BATCH = 4
# ONNX Runtime's path for CUDA with the provider of processors.
ON_CPU = "tests.faults.engines.onnxruntime_cuda"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    reference = Reference(tmp_path_factory.mktemp("reference"), 1, 2, 600, LiveWorkers())
    return InferenceJudge(reference, 600)


@pytest.fixture
def prove(judge, tmp_path):
    """Prove networks in one worker of an engine: verdicts by name, or the refusal in words."""

    def ask(engine, names, module="", residence="host", summands="", device="cpu", **task):
        task = {"precision": "fp32", "tuning": "stock", **task}
        # The packages are PyTorch's.
        environment = environment_of("pytorch" if engine == "aotinductor" else engine)
        trial = Trial(engine, environment.release, names[0], BATCH, 1, "cpu", 1, **task,
                      data="host", learning_rate=0.0, parameters=0, flops_per_step=0,
                      dropout=False, processes_planned=1, mode="inference")
        found = {}
        with launch.start(environment, trial, tmp_path / "log", module) as worker:
            for name in names:
                try:
                    verdict = inference_verdict(judge, worker, name, BATCH, residence, summands,
                                                device=device, **task)
                    found[name] = verdict.reason or verdict.verdict
                except Unsupported as refusal:
                    found[name] = f"unsupported: {refusal}"
        return found

    return ask


SMALL = networks.names(small=True)


@pytest.mark.parametrize(("engine", "names"), [
    *((engine, ("tiny_resnet", "tiny_gpt")) for engine in ENGINES),
    *slow_but([], [*((engine, SMALL) for engine in (*ENGINES, "litert")), ("aotinductor", ("tiny_fcn",))])])
def test_an_engine_computes_small_networks(prove, engine, names):
    assert prove(engine, names) == dict.fromkeys(names, "same")


# A compiler's networks: batch norm, and an LSTM, which JAX's tuned tier unrolls.
@pytest.mark.parametrize(("engine", "tuning", "network"), [
    pytest.param("pytorch", "compiled", "tiny_fcn", marks=slow),
    pytest.param("pytorch", "tuned", "tiny_resnet", marks=slow),
    pytest.param("aotinductor", "tuned", "tiny_resnet", marks=slow), ("jax", "tuned", "tiny_lstm")])
def test_a_tier_of_its_own_computes_the_network_too(prove, engine, tuning, network):
    found = prove(engine, [network], tuning=tuning, residence="device")
    assert found == {network: "same"}


@pytest.mark.parametrize(("engine", "tuning", "says"), [
    ("onnxruntime", "tuned", "unsupported: same as stock"),
    ("openvino", "compiled", "unsupported: same as stock"),
    ("onnxruntime", "uncompiled", "unsupported: tuning 'uncompiled'"),
    ("jax", "compiled", "unsupported: same as stock")])
def test_a_tier_that_sets_nothing_of_its_own_is_refused(prove, engine, tuning, says):
    assert prove(engine, ["tiny_fcn"], tuning=tuning)["tiny_fcn"].startswith(says)


@pytest.mark.parametrize("engine", ["pytorch", "jax"])
def test_bf16_is_off_by_what_bf16_rounds(prove, engine):
    assert prove(engine, ["tiny_resnet"], precision="bf16") == {"tiny_resnet": "same"}


IN_INT8 = tuple(name for name in SMALL if not int8.refusal(networks.get(name).to_json()))
QUICK_INT8 = ("tiny_fcn", "tiny_gpt", "tiny_inception", "tiny_llama", "tiny_resnet", "tiny_vit")


@needs_vnni
@pytest.mark.parametrize(("engine", "names"), [
    *((engine, QUICK_INT8) for engine in INT8),
    *slow_but([], [(engine, tuple(name for name in IN_INT8 if name not in QUICK_INT8)) for engine in INT8])])
def test_int8_is_what_the_reference_makes_of_the_same_scales(prove, engine, names):
    assert set(QUICK_INT8) < set(IN_INT8)
    found = prove(engine, names, precision="int8", summands=INT8[engine])
    assert found == dict.fromkeys(names, "same")


@pytest.mark.parametrize(("engine", "fault", "says"), [
    ("onnxruntime", "Float", "the engine did not quantise"),
    ("onnxruntime", "Simulated", "the engine says that it computes in float32 in 8 of 8 products, int8"),
    ("onnxruntime", "RandomScales", "outputs are off by"),
    ("onnxruntime", "WiderScale", "outputs are off by"),
    ("onnxruntime", "OtherZeroPoint", "outputs are off by"),
    ("openvino", "Float", "the engine says that it computes in float32 in 8 of 8 products, int8")])
def test_a_fault_of_int8_is_different_and_named(prove, engine, fault, says):
    found = prove(engine, ["resnet8"], f"tests.faults.engines.int8_{engine}:{fault}", precision="int8",
                  summands=INT8[engine])
    assert says in found["resnet8"]


@pytest.mark.parametrize(("engine", "fault", "says"), [
    ("onnxruntime", "Float", {"tiny_gpt": "the engine did not quantise", "tiny_llama": "the engine did not quantise"}),
    ("onnxruntime", "Simulated", {"tiny_gpt": "in float32 in 9 of 9 products, int8", "tiny_llama": "in float32 in 15 of 15 products, int8"}),
    ("onnxruntime", "FloatHead", {"tiny_gpt": "in float32 in 1 of 9 products, int8", "tiny_llama": "in float32 in 1 of 15 products, int8"}),
    ("onnxruntime", "RandomScales", {"tiny_gpt": "outputs are off by 0.9", "tiny_llama": "outputs are off by 0.9"}),
    ("onnxruntime", "WiderScale", {"tiny_gpt": "outputs are off by", "tiny_llama": "outputs are off by"}),
    ("openvino", "Float", {"tiny_gpt": "in float32 in 9 of 9 products, int8", "tiny_llama": "in float32 in 15 of 15 products, int8"})])
def test_a_fault_of_int8_in_a_language_model_is_different_and_named(prove, engine, fault, says):
    found = prove(engine, list(says), f"tests.faults.engines.int8_{engine}:{fault}", precision="int8",
                  summands=INT8[engine])
    assert all(part in found[name] for name, part in says.items()), found


@pytest.mark.parametrize(("able", "saturates"), [({"avx2"}, True), ({"avx2", "avx_vnni"}, False), (set(), False)])
def test_int8_on_a_processor_that_saturates_is_refused_with_the_cause(prove, monkeypatch, able, saturates):
    monkeypatch.setattr(hardware, "instructions", lambda: able)
    found = prove("onnxruntime", ["tiny_fcn"], "tests.faults.engines.int8_onnxruntime:RandomScales", precision="int8",
                  summands=INT8["onnxruntime"])["tiny_fcn"]
    assert found.startswith("outputs are off by") and found.endswith(SATURATES) == saturates


def test_a_form_of_additions_that_the_engine_lacks_is_found(prove):
    found = prove("openvino", ["tiny_resnet"], precision="int8", summands=INT8["onnxruntime"])
    assert "outputs are off by" in found["tiny_resnet"]


def test_a_precision_that_an_engine_lacks_here_is_unsupported(prove):
    found = prove("onnxruntime", ["tiny_fcn"], precision="bf16")["tiny_fcn"]
    assert found.startswith("unsupported: bf16 on a CPU: ONNX Runtime's kernels there")
    found = prove("openvino", ["tiny_fcn"], precision="tf32")["tiny_fcn"]
    assert found.startswith("unsupported: TF32 is a format of NVIDIA's tensor cores")


@pytest.mark.parametrize("residence", ["device", "host"])
@pytest.mark.parametrize("tuning", ["stock", "tuned"])
def test_the_path_for_cuda_computes_networks_on_another_provider(prove, tuning, residence):
    found = prove("onnxruntime", ["tiny_resnet", "tiny_gpt", "tiny_lstm"], f"{ON_CPU}:OnCpu", residence, device="cuda",
                  tuning=tuning)
    assert found == dict.fromkeys(["tiny_resnet", "tiny_gpt", "tiny_lstm"], "same")


@pytest.mark.parametrize(("fault", "precision", "says"), [
    ("OnCpu", "fp16", "same"),
    ("Silent", "fp16", "the engine computed in a finer precision"),
    ("Silent", "tf32", "the engine computed in a finer precision"),
    ("OnCpu", "bf16", "unsupported: CPUExecutionProvider: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED"),
    ("FallsBack", "fp32", "fallback to CPU EP has been explicitly disabled by the user")])
def test_on_cuda_a_precision_is_what_was_asked_for_or_refused(prove, fault, precision, says):
    found = prove("onnxruntime", ["tiny_resnet"], f"{ON_CPU}:{fault}", "device", device="cuda", precision=precision)
    assert says in found["tiny_resnet"]


def test_a_build_without_cuda_says_which_providers_it_has(prove):
    found = prove("onnxruntime", ["tiny_fcn"], device="cuda")["tiny_fcn"]
    assert found.startswith("unsupported: CUDAExecutionProvider: this build of ONNX Runtime has ") and "CPUExecutionProvider" in found


def test_autocast_under_the_name_of_fp32_is_found(prove):
    found = prove("pytorch", ["tiny_resnet"], "tests.faults.engines.pytorch:Autocast")["tiny_resnet"]
    assert "so large an error is that of bf16" in found


@slow
def test_a_file_of_litert_without_weights_is_found(prove):
    found = prove("litert", ["tiny_fcn"], "tests.faults.engines.litert:WithoutWeights")["tiny_fcn"]
    assert found.startswith("outputs are off by nan")
    refused = prove("litert", ["tiny_fcn"], precision="bf16")["tiny_fcn"]
    assert refused == "unsupported: bf16 on cpu: LiteRT runs in fp32 on processors here"


@needs_avx512
def test_openvino_is_refused_by_what_it_says_of_itself(prove):
    found = prove("openvino", ["tiny_resnet"], "tests.faults.engines.openvino:SilentBf16")["tiny_resnet"]
    assert found.startswith("the engine says that it computes in bf16, fp32 was asked for")
