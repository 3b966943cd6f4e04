"""Keras 3 on JAX: its guide's jitted function of a state, donated as Keras's own trainer does."""

import jax
import keras

from runners import protocol
from runners.jax import device as of_jax

TIERS = {
    "stock": ["jax.jit"],
    "compiled": ["jax.jit"],
    "tuned": ["jax.jit"],
    "uncompiled": "JAX's operations one by one are for finding errors",
}
prepare = of_jax.prepare


def keras_device(device):
    return f"{device.platform}:0"


def libraries():
    return {"jax": jax.__version__}


def device_name():
    # Asking JAX for its devices would fix the CPU's threads.
    return protocol.processor_name()


def peak_memory(device):
    return device.memory_stats()["peak_bytes_in_use"]


class Trainer:
    """The step of "Writing a training loop from scratch in JAX"."""

    def __init__(self, model, optimizer, device, settings):
        self.device = device
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def compute_loss(trainable, non_trainable, inputs, targets):
            logits, non_trainable = model.stateless_call(trainable, non_trainable, inputs,
                                                         training=True)
            return loss_function(targets, logits), non_trainable

        differentiate = jax.value_and_grad(compute_loss, has_aux=True)

        def train_step(state, inputs, targets):
            trainable, non_trainable, optimizer_state = state
            (loss, non_trainable), gradients = differentiate(trainable, non_trainable, inputs,
                                                             targets)
            trainable, optimizer_state = optimizer.stateless_apply(optimizer_state, gradients,
                                                                   trainable)
            return (trainable, non_trainable, optimizer_state), loss

        self.train_step = jax.jit(train_step, donate_argnums=0)
        self.groups = (model.trainable_variables, model.non_trainable_variables,
                       optimizer.variables)
        self.take()

    def take(self):
        """Copy the state out of Keras's variables: the step overwrites it."""
        values = tuple([variable.value for variable in group] for group in self.groups)
        self.state = jax.device_put(values, self.device, may_alias=False)

    def give_back(self):
        """Write the state to Keras's variables, as its guide does at the end."""
        for variables, values in zip(self.groups, self.state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                # A copy, because the next step overwrites what it is given.
                variable.assign(jax.numpy.array(value, copy=True))

    def place(self, batch):
        return jax.device_put(batch, self.device)

    def step(self, inputs, targets):
        self.state, loss = self.train_step(self.state, inputs, targets)
        return loss

    def synchronize(self):
        jax.block_until_ready(self.state)
