"""Nested parts of PyTorch's step. Their differences are the times of forward, backward and so on.

Each part takes the step's own next batch and runs as the step does, in its own CUDA graph where the
step has one. None changes the weights. What a lossy strategy keeps for the next step moves in FBA
and A, batch norm's running averages in all. In `stock` DDP sends those averages before each forward
pass that ends in an aggregation, so their time counts as aggregation.
"""

from runners.protocol import Part, Unsupported


def variant(runner, name):
    """Return the part `name` of the runner's step: see `runners.protocol.Runner.variant`."""
    if name == "A":
        return Part(runner.aggregation.alone(), runner.synchronize)
    if name not in WORK:
        raise Unsupported(f"this runner has no part '{name}' of a step")
    work = runner.fit(lambda inputs, targets: WORK[name](runner, inputs, targets))
    return Part(lambda: work(*runner.next_batch()), runner.synchronize)


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
