"""A tier sets what its runner says, and one that sets nothing more than another is not measured."""

import json
import re
import subprocess

import pytest

import networks
from runners.protocol import Task, Unsupported, settings_of
from tests.conftest import needs_compiler
from tests.slow import slow_but

GPU_TIERS = """
import json, sys
from runners.protocol import Task
from runners.{framework}.runner import tiers
found = []
for network, precision, devices, compiles in json.loads(sys.argv[1]):
    found.append({{}})
    for tuning in ("stock", "compiled", "tuned", "uncompiled"):
        task = Task(network, 8, "cuda", precision=precision, tuning=tuning, devices=devices)
        asks = [lambda asked: compiles] if "{framework}" == "tensorflow" else []
        found[-1][tuning] = tiers(task, *asks)[tuning]
print("TIERS" + json.dumps(found))
"""
IN_JAX = ["jax.jit", "xla_gpu_triton_gemm_any"]
GRAPHS = "xla_gpu_enable_command_buffer=+CONVOLUTION"
IN_TENSORFLOW = ["TF_GPU_THREAD_MODE=gpu_private",
                 "XLA_FLAGS=--xla_gpu_triton_gemm_any=true --xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL "
                 "--xla_gpu_graph_min_graph_size=1"]
ON_A_GPU = {
    ("pytorch", "resnet50", "bf16", 1): {
        "stock": [], "compiled": ["torch.compile"],
        "tuned": ["torch.compile", "fused SGD", "channels_last", "CUDA graph", "cuDNN benchmark",
                  "pinned host memory"]},
    ("jax", "resnet50", "bf16", 1): {
        "stock": ["jax.jit"], "tuned": [*IN_JAX, GRAPHS]},
    # Recorded on two GPUs, convolutions make XLA hang.
    ("jax", "resnet50", "bf16", 2): {
        "stock": ["jax.jit"], "tuned": [*IN_JAX, "xla_gpu_enable_latency_hiding_scheduler",
                                        "the last layers' gradients sent first"]},
    ("jax", "lstm32", "tf32", 1): {
        "tuned": [*IN_JAX, "scan unroll=8"]},
    ("jax", "gpt2_small", "bf16", 1): {
        "tuned": [*IN_JAX, "cuDNN attention"]},
    ("jax", "gpt2_small", "tf32", 1): {"tuned": IN_JAX},
    ("jax", "vit_b16", "bf16", 1): {"tuned": [*IN_JAX, GRAPHS, "cuDNN attention"]},
    # Keras's "auto" is XLA on a GPU, where every layer supports it.
    ("tensorflow", "resnet50", "bf16", 1): {
        "stock": ["XLA"], "compiled": ["XLA"], "uncompiled": [],
        "tuned": ["XLA", *IN_TENSORFLOW]},
    ("tensorflow", "resnet50", "bf16", 2): {
        "compiled": ["XLA"],
        "tuned": ["XLA", "XLA-compiled update", "gradients in one vector", *IN_TENSORFLOW]},
    # XLA does not compile cuDNN's cell, which is broken in bf16.
    ("tensorflow", "lstm32", "tf32", 1): {"stock": [], "compiled": ["use_cudnn=False"]},
    ("tensorflow", "lstm32", "bf16", 1): {
        "stock": ["XLA", "use_cudnn=False"], "uncompiled": ["use_cudnn=False"],
        "tuned": ["XLA", "use_cudnn=False", "unroll=True", *IN_TENSORFLOW]},
}


def tier(name, tiers):
    return settings_of(Task({}, 1, tuning=name), tiers)


def test_a_tier_that_sets_what_an_earlier_one_sets_is_not_measured_again():
    tiers = {"stock": [], "compiled": ["jit"], "tuned": ["jit"], "uncompiled": []}
    assert tier("stock", tiers) == []
    assert tier("compiled", tiers) == ["jit"]
    with pytest.raises(Unsupported, match=r"^same as compiled: jit$"):
        tier("tuned", tiers)
    with pytest.raises(Unsupported, match=r"^same as stock: there is nothing more to set$"):
        tier("uncompiled", tiers)


def test_a_tier_that_a_framework_lacks_says_why():
    with pytest.raises(Unsupported, match=r"^tuning 'tuned': it has no guide$"):
        tier("tuned", {"stock": [], "tuned": "it has no guide"})
    with pytest.raises(Unsupported, match=r"^tuning 'magic': this runner has stock, compiled,"):
        tier("magic", {"stock": []})


@pytest.mark.parametrize(("framework", "tuning", "settings"), [
    ("pytorch", "stock", []),
    pytest.param("pytorch", "compiled", ["torch.compile"], marks=needs_compiler),
    pytest.param("pytorch", "tuned", ["torch.compile", "fused SGD", "channels_last"], marks=needs_compiler),
    ("tensorflow", "stock", []),
    ("tensorflow", "compiled", ["XLA"]),
    ("jax", "stock", ["jax.jit"]),
    ("paddle", "compiled", ["paddle.jit.to_static"]),
    ("mxnet", "stock", ["hybridize"]),
    ("caffe", "stock", []),
])
def test_a_worker_answers_what_its_tier_sets_on_a_cpu(worker_for, framework, tuning, settings):
    with worker_for(framework, "", {"tuning": tuning}) as worker:
        built = worker.ask("build", 300, network=networks.get("tiny_cnn").to_json(), batch=4,
                           threads=1, tuning=tuning)
    assert built["settings"] == settings


@pytest.mark.parametrize("framework", slow_but(["pytorch"], sorted({framework for framework, *_ in ON_A_GPU})))
def test_tiers_on_a_gpu(interpreter_of, framework):
    expected = {key: tiers for key, tiers in ON_A_GPU.items() if key[0] == framework}
    given = json.dumps([[networks.get(network).to_json(), precision, devices,
                         (network, precision) != ("lstm32", "tf32")]
                        for _, network, precision, devices in expected])
    done = subprocess.run(
        [interpreter_of(framework), "-c", GPU_TIERS.format(framework=framework), given],
        capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.partition("TIERS")[2])
    assert {key: {name: tiers[name] for name in expected[key]}
            for key, tiers in zip(expected, found, strict=True)} == expected


GIVEN = """
import json, os
from runners.{framework} import {module} as tiers
found = []
for flags in ("", "--xla_gpu_enable_command_buffer="):
    os.environ["XLA_FLAGS"] = flags
    found.append({call})
print("GIVEN" + json.dumps(found))
"""


def given(interpreter, **program):
    done = subprocess.run([interpreter, "-c", GIVEN.format(**program)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.partition("GIVEN")[2])


def test_a_trace_switches_the_command_buffers_of_tuned_jax_off(interpreter_of):
    timed, traced = given(interpreter_of("jax"), framework="jax", module="tiers",
                          call="tiers.compiler_options([tiers.TRITON, tiers.GRAPHS])")
    recorded = timed.pop("xla_gpu_enable_command_buffer")
    assert recorded.endswith(",CONVOLUTION")
    assert timed == traced == {"xla_gpu_triton_gemm_any": True}


DUMPS = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer=+CONVOLUTION --xla_dump_to=" + sys.argv[1]
import jax
jax.jit(lambda number: number + 1)(1)
"""


def test_jax_records_what_xla_records_by_itself_and_convolutions(interpreter_of, tmp_path):
    subprocess.run([interpreter_of("jax"), "-c", DUMPS, str(tmp_path)], check=True)
    [options] = tmp_path.glob("*lambda*.debug_options")
    wanted = re.findall("^xla_gpu_enable_command_buffer: (.*)", options.read_text(), re.MULTILINE)
    assert len(wanted) == len(set(wanted)) > 1
    [taken, _] = given(interpreter_of("jax"), framework="jax", module="tiers", call="tiers.RECORDED.split(',')")
    assert sorted(taken) == sorted(wanted)


def test_an_xla_is_asked_whether_it_records_convolutions(interpreter_of):
    known = "tiers.records_convolutions()"
    unknown = f"tiers.FLAGS.update({{tiers.GRAPHS: (tiers.COMMAND_BUFFERS, 'UNHEARD_OF')}}) or {known}"
    assert given(interpreter_of("jax"), framework="jax", module="tiers", call=known) == [True, True]
    assert given(interpreter_of("jax"), framework="jax", module="tiers", call=unknown) == [False, False]


def test_a_trace_switches_the_command_buffers_of_tuned_tensorflow_off(interpreter_of):
    call = "tiers.tuned_variables(os.environ['XLA_FLAGS'])['XLA_FLAGS']"
    timed, traced = given(interpreter_of("tensorflow"), framework="tensorflow", module="devices", call=call)
    # XLA takes a flag's last value.
    assert traced == f"{timed} --xla_gpu_enable_command_buffer="
