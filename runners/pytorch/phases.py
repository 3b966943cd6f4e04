"""Nested parts of PyTorch's step, whose differences are forward, backward, exposed aggregation and update.

Each takes the step's own next batch and runs as the step does, in a CUDA graph of its own where that is captured. None changes the
weights but FBAU, which is the step and trains on; what a lossy strategy keeps for the next step moves in FBA and A, batch norm's
running averages in all. In `stock` DDP sends those averages before each forward pass that ends in an aggregation, so their time
counts as aggregation.
"""

from runners.protocol import Unsupported


def variant(runner, name):
    """Return the part `name` of the runner's step: see `runners.protocol.Runner.variant`."""
    if name == "A":
        return Part(runner.aggregation.alone(), runner)
    if name == "FBAU":
        return Part(runner.step, runner)
    if name not in WORK:
        raise Unsupported(f"this runner has no part '{name}' of a step")
    work = runner.fit(lambda inputs, targets: WORK[name](runner, inputs, targets))
    return Part(lambda: work(*runner.next_batch()), runner)


class Part:
    """What `timed_run` repeats."""

    def __init__(self, step, runner):
        self.step = step
        self.synchronize = runner.synchronize


def forward(runner, inputs, targets):
    with runner.aggregation.local():
        return runner.mean_loss(inputs, targets).detach()


def forward_and_backward(runner, inputs, targets):
    with runner.aggregation.local():
        return runner.differentiate(inputs, targets)


def forward_backward_and_aggregation(runner, inputs, targets):
    loss = runner.differentiate(inputs, targets)
    runner.aggregation.aggregate()
    return loss


WORK = {"F": forward, "FB": forward_and_backward, "FBA": forward_backward_and_aggregation}
