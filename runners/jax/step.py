"""The one step in JAX: a pure function of state and batch, and the parts of it.

On several devices `lax.pmean` aggregates the gradients, or `sharding` divides the network.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.jax.layers import cross_entropy, forward
from runners.jax.sharding import SPLIT, WHOLE
from runners.jax.tiers import SENT_EARLY

# Fixed, so that an fp16 trajectory can be compared.
LOSS_SCALE = 1024.0
# The share of all gradients that `tuned` sends while the backward pass runs.
EARLY = 0.8


def write_step(runner):
    """Compile the training step of a runner; of an undivided network its parts and inference."""
    layers, style, division = runner.network["layers"], runner.style, runner.division
    several = runner.task.devices > 1 and not division
    learning_rate, momentum = runner.network["learning_rate"], runner.network["momentum"]
    scale = LOSS_SCALE if runner.task.precision == "fp16" else 1.0

    def scaled_loss(parameters, statistics, key, inputs, targets):
        if several and key is not None:
            # Each device drops other units.
            key = jax.random.fold_in(key, lax.axis_index("devices"))
        if division:
            parameters = division.gathered(parameters)
        outputs, statistics = forward(layers, style, parameters, statistics, key, inputs)
        logits = outputs[layers[-1]["name"]]
        loss = cross_entropy(division.logits(logits, layers[-1]["name"]) if division else
                             logits, targets)
        # One loss a device.
        return scale * loss, (loss[None], statistics)

    if division:
        scaled_loss = division.forgetting(scaled_loss)

    def loss_and_gradients(state, key, inputs, targets):
        gradients, (loss, statistics) = jax.grad(scaled_loss, has_aux=True)(
            state["parameters"], state["statistics"], key, inputs, targets)
        if scale != 1:
            gradients = jax.tree.map(lambda gradient: gradient / scale, gradients)
        return loss, statistics, gradients

    def aggregate(gradients):
        if not several:
            return gradients
        if SENT_EARLY in runner.settings:
            names = [layer["name"] for layer in layers]
            return mean_in_two_parts(gradients, names, runner.task.devices)
        return lax.pmean(gradients, "devices")

    def train_step(state, inputs, targets):
        key, now = jax.random.split(state["key"]) if runner.dropout else (None, None)
        loss, statistics, gradients = loss_and_gradients(state, now, inputs, targets)
        gradients, rate, recipe = aggregate(gradients), learning_rate, state["recipe"]
        if recipe:
            rate, decay = recipe["rate"], recipe["decay"]
            gradients = jax.tree.map(lambda gradient, weight: gradient + decay * weight,
                                     gradients, state["parameters"])
        parameters, velocity = sgd(state["parameters"], state["velocity"], gradients, rate,
                                   momentum)
        return {"parameters": parameters, "velocity": velocity, "statistics": statistics,
                "key": key, "recipe": recipe}, loss

    def only_loss(_after, state, inputs, targets):
        return scaled_loss(state["parameters"], state["statistics"], state["key"], inputs,
                           targets)[1]

    def local_gradients(_after, state, inputs, targets):
        loss, statistics, gradients = loss_and_gradients(state, state["key"], inputs, targets)
        return loss, (statistics, gradients)

    def mean_gradients(after, state, inputs, targets):
        loss, (statistics, gradients) = local_gradients(after, state, inputs, targets)
        return loss, (statistics, aggregate(gradients))

    takes = (SPLIT, runner.takes, runner.batch_spec, runner.batch_spec)
    gives = (runner.takes, WHOLE if division else SPLIT)
    runner.train_step = runner.compile(train_step, takes[1:], gives, donate_argnums=0)
    if division:
        return
    write_inference(runner)
    # keep_unused: `_after` orders the steps.
    parts = {"F": (only_loss, SPLIT), "FB": (local_gradients, SPLIT),
             "FBA": (mean_gradients, (SPLIT, WHOLE))}
    runner.phases = {name: runner.compile(part, takes, (SPLIT, gives), keep_unused=True)
                     for name, (part, gives) in parts.items()}
    runner.aggregate = runner.compile(aggregate, (WHOLE,), WHOLE, donate_argnums=0)


def write_inference(runner):
    """Compile the forward pass in inference mode.

    Weights are arguments, as in JAX's libraries, so that XLA does not fold them into the code.
    """
    layers, style = runner.network["layers"], runner.style._replace(training=False)

    def infer(parameters, statistics, inputs):
        outputs, _ = forward(layers, style, parameters, statistics, None, inputs)
        return outputs[layers[-1]["name"]].astype(jnp.float32)

    runner.inference = runner.compile(infer, (WHOLE, SPLIT, SPLIT), SPLIT)


def mean_in_two_parts(gradients, layers, devices):
    """Return the mean of gradients over devices, and send those of the last layers first.

    Backward has these first. Without the barrier XLA (JAX 0.11.2) sends the first layer's with the
    first part, so none before backward ends (openxla/xla issue 1539).
    """
    left = EARLY * sum(leaf.size for leaf in jax.tree.leaves(gradients))
    early, late = {}, dict(gradients)
    for layer in reversed(layers):
        if left > 0 and layer in late:
            early[layer] = late.pop(layer)
            left -= sum(leaf.size for leaf in jax.tree.leaves(early[layer]))
    sums, late = lax.optimization_barrier((lax.psum(early, "devices"), late))
    sums |= lax.psum(late, "devices")
    # Division comes last: XLA fuses it with the update.
    return {layer: jax.tree.map(lambda leaf: leaf / devices, sums[layer]) for layer in gradients}


def sgd(parameters, velocity, gradients, learning_rate, momentum):
    velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    return jax.tree.map(lambda w, v: w - learning_rate * v, parameters, velocity), velocity


class Phase:
    """A part of the step to repeat. It reads the losses of the last one, so it runs after it."""

    def __init__(self, runner, function):
        self.runner = runner
        self.function = function
        self.results = (runner.no_losses(), None)

    def step(self):
        batch = self.runner.next_batch()
        self.results = self.runner.settle(self.function(self.results[0], self.runner.state, *batch))

    def synchronize(self):
        jax.block_until_ready(self.results)


class Aggregation:
    """The mean over devices alone, of buffers of the gradients' shapes, in place."""

    def __init__(self, runner):
        self.runner = runner
        zeros = jax.tree.map(lambda held: np.zeros(held.shape, held.dtype),
                             runner.state["parameters"])
        self.buffers = runner._place(zeros, WHOLE)

    def step(self):
        self.buffers = self.runner.settle(self.runner.aggregate(self.buffers))

    def synchronize(self):
        jax.block_until_ready(self.buffers)
