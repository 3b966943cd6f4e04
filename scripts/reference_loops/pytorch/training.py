"""Trains a PyTorch model as its tutorials do; `tuned` follows its performance guide.

The guide's settings are channels_last, torch.compile, a fused optimiser, cuDNN's benchmark mode and
one CUDA graph of the whole step. In bf16 autocast lets cuDNN compute an LSTM in fp16.
"""

import contextlib

import torch
from torch import nn

TIERS = ("stock", "compiled", "tuned")


def prepare(model, inputs, targets, learning_rate, options):
    device, tuned = torch.device(options.device), options.tier == "tuned"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = tuned
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    if tuned and inputs.ndim == 4:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9,
                                fused=True if tuned else None)
    criterion = nn.CrossEntropyLoss()

    def loss_of(inputs, targets):
        with autocast(options):
            return criterion(model(inputs).flatten(0, -2), targets.flatten())

    if options.tier != "stock":
        loss_of = torch.compile(loss_of)

    def train_step():
        optimizer.zero_grad()
        loss_of(inputs, targets).backward()
        optimizer.step()

    step = capture(train_step) if tuned and options.device == "cuda" else train_step

    def run(steps):
        for _ in range(steps):
            step()
        if options.device == "cuda":
            torch.cuda.synchronize()

    return run


def autocast(options):
    if options.precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(options.device, torch.bfloat16, cache_enabled=False)


def capture(train_step):
    """Capture a whole step, after warm-up steps on a side stream as PyTorch's notes ask."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            train_step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train_step()
    return graph.replay
