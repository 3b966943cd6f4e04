"""Exports a trained PyTorch model to ONNX and runs it in ONNX Runtime, as its documentation does.

On CUDA inputs and outputs stay on the GPU (I/O binding). `tuned` adds the CUDA provider's options
for fixed shapes: CUDA graphs, and N H W C kernels for images.
"""

import tempfile
from pathlib import Path

import onnxruntime
import torch
from onnxruntime import InferenceSession, OrtValue

TIERS = ("stock", "tuned")
PRECISIONS = ("fp32", "tf32", "fp16")


def prepare(model, inputs, targets, learning_rate, options):
    if options.precision not in PRECISIONS:
        raise SystemExit(f"--precision {options.precision}: choose from {PRECISIONS}")
    model = model.eval()
    if options.precision == "fp16":
        model = model.half()
        inputs = inputs.half() if inputs.is_floating_point() else inputs
    if options.device == "cuda" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        with torch.inference_mode():
            # The newer exporter writes an LSTM as a loop.
            torch.onnx.export(model, (inputs,), file, dynamo=False)
            outputs = model(inputs)
        session = InferenceSession(file, providers=[provider(options, images=inputs.ndim == 4)])
    name, answer = session.get_inputs()[0].name, session.get_outputs()[0].name
    if options.device == "cpu":
        return repeated(lambda: session.run(None, {name: inputs.numpy()}))
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(inputs.numpy(), "cuda", 0))
    # A CUDA graph writes its outputs to the same place in each call.
    binding.bind_ortvalue_output(answer, OrtValue.ortvalue_from_numpy(outputs.numpy(), "cuda", 0))
    return repeated(lambda: session.run_with_iobinding(binding))


def provider(options, images):
    if options.device == "cpu":
        return "CPUExecutionProvider"
    tuned = options.tier == "tuned"
    return "CUDAExecutionProvider", {"use_tf32": int(options.precision == "tf32"),
                                     "enable_cuda_graph": int(tuned),
                                     "prefer_nhwc": int(tuned and images)}


def repeated(call):
    def run(steps):
        for _ in range(steps):
            call()

    return run
