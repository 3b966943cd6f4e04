"""Runs a trained PyTorch model as its documentation does: eval mode under `inference_mode`.

Each call's outputs are awaited. `tuned` adds what the performance guide and Inductor's pages name:
channels_last, frozen weights, cuDNN's benchmark mode and CUDA graphs.
"""

import contextlib

import torch
import torch._inductor.config

TIERS = ("stock", "compiled", "tuned")
KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def prepare(model, inputs, targets, learning_rate, options):
    device, tuned = torch.device(options.device), options.tier == "tuned"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = torch._inductor.config.freezing = tuned
    model, inputs = model.to(device).eval(), inputs.to(device)
    if tuned and inputs.ndim == 4:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    kind = KINDS.get(options.precision)

    def call(inputs):
        with torch.autocast(options.device, kind) if kind else contextlib.nullcontext():
            return model(inputs)

    if options.tier != "stock":
        graphs = tuned and options.device == "cuda"
        call = torch.compile(call, mode="reduce-overhead" if graphs else None)

    def run(steps):
        # Inductor reads the versions of weights that it freezes.
        with torch.no_grad() if tuned else torch.inference_mode():
            for _ in range(steps):
                call(inputs)
                if options.device == "cuda":
                    torch.cuda.synchronize()

    return run
