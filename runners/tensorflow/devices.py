"""TensorFlow's devices for a task, and what each tier sets."""

import os

import tensorflow as tf

from runners import protocol
from runners.keras.layers import POLICIES
from runners.protocol import Unsupported
from runners.tensorflow import nodes

# TensorFlow's guide to GPU performance and OpenXLA's to its flags; read at the first compilation.
# XLA records loops in CUDA graphs too, and graphs of fewer than its own 5 kernels.
TUNED_GPU = {
    "TF_GPU_THREAD_MODE": "gpu_private",
    "XLA_FLAGS": "--xla_gpu_triton_gemm_any=true "
                 "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL "
                 "--xla_gpu_graph_min_graph_size=1"}
COMPILED_UPDATE, ONE_VECTOR = "XLA-compiled update", "gradients in one vector"
STRATEGIES = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "one_device": tf.distribute.ReductionToOneDevice,
}


def prepare_devices(task):
    """Fix devices, threads and TF32 before the first operation; return the devices' names."""
    known = nodes.COMMUNICATION if task.ranks > 1 else STRATEGIES
    protocol.refuse_unknown(task, precisions=POLICIES, strategies=known)
    local = task.devices // task.ranks
    gpus = tf.config.list_physical_devices("GPU")
    if task.device == "cuda" and not gpus:
        kind = "a CUDA build" if tf.test.is_built_with_cuda() else "a build without CUDA"
        raise Unsupported("TensorFlow sees no GPU: tf.config.list_physical_devices('GPU') is empty "
                          f"in {kind}")
    if task.device == "cuda" and task.tuning == "tuned":
        os.environ.update(tuned_variables(os.environ.get("XLA_FLAGS", "")))
    if task.device == "cuda" and len(gpus) < local:
        raise Unsupported(f"{local} devices: tf.config.list_physical_devices('GPU') has "
                          f"{len(gpus)}")
    try:
        # Hidden GPUs cannot be used by accident.
        visible = gpus[:local] if task.device == "cuda" else []
        tf.config.set_visible_devices(visible, "GPU")
        # Else TensorFlow takes all memory, and the peak means nothing.
        for gpu in visible:
            tf.config.experimental.set_memory_growth(gpu, True)
        if task.device == "cpu" and local > 1:
            cpu = tf.config.list_physical_devices("CPU")[0]
            logical = [tf.config.LogicalDeviceConfiguration()] * local
            tf.config.set_logical_device_configuration(cpu, logical)
        # One pool for all logical CPUs. With GPUs the numbers stay TensorFlow's own.
        if task.device == "cpu":
            tf.config.threading.set_intra_op_parallelism_threads(task.threads * local)
            tf.config.threading.set_inter_op_parallelism_threads(task.threads * local)
    except RuntimeError as error:
        raise Unsupported("TensorFlow fixes devices and threads once a process, start another: "
                          f"{error}") from error
    tf.config.experimental.enable_tensor_float_32_execution(task.precision == "tf32")
    name = "GPU" if task.device == "cuda" else "CPU"
    return [f"/{name}:{number}" for number in range(local)]


def tiers(task, compiles):
    """Return what each tier sets; `compiles(asked)` tells what Keras makes of `jit_compile`."""
    found = {"stock": ["XLA"] * compiles("auto"), "compiled": ["XLA"] * compiles(True),
             "tuned": ["XLA"], "uncompiled": []}
    for tuning, settings in found.items():
        # A CPU has no cuDNN anyway.
        settings += [f"{name}={value}" for name, value in lstm_options(task, tuning).items()
                     if task.device == "cuda" or name != "use_cudnn"]
    # On one device XLA compiles the whole step anyway.
    if task.devices > 1:
        found["tuned"].append(COMPILED_UPDATE)
    # XLA joins gradients slowly on CPUs: `fcn5` on two devices took 154 ms so, and 113 without.
    if task.devices > 1 and task.device == "cuda":
        found["tuned"].append(ONE_VECTOR)
    if task.device == "cuda":
        found["tuned"] += [f"{name}={value}" for name, value in TUNED_GPU.items()]
    return found


def tuned_variables(given):
    """Return the variables of `tuned`. Flags already given come last and win, as a trace needs."""
    return {**TUNED_GPU, "XLA_FLAGS": " ".join(filter(None, [TUNED_GPU["XLA_FLAGS"], given]))}


def lstm_options(task, tuning):
    """Return the options of Keras's LSTM that are not its defaults; {} without an LSTM.

    In bfloat16 cuDNN's kernel leaves gradients unwritten (TensorFlow 2.21, cuDNN 9.19, H200): all
    but the last layer learn nothing. XLA cannot compile the kernel, so Keras would not compile.
    Unrolled, the host need not launch each word's kernels.
    """
    if not any(layer["op"] == "lstm" for layer in task.network["layers"]):
        return {}
    without = task.precision == "bf16" or tuning in ("compiled", "tuned")
    return {**({"use_cudnn": False} if without else {}),
            **({"unroll": True} if tuning == "tuned" else {})}
