"""Keras 3 on PyTorch: `backward`, then `optimizer.apply`, as its guide writes them."""

import keras
import torch

from runners import protocol

TIERS = {
    "stock": [],
    "compiled": ["torch.compile"],
    "tuned": ["torch.compile"],
    "uncompiled": "PyTorch's stock is eager",
}


def prepare(task):
    """Fix threads and TF32; return PyTorch's device."""
    if task.device == "cuda" and not torch.cuda.is_available():
        raise protocol.Unsupported("torch.cuda.is_available() is False in this environment")
    if task.device == "cpu":
        torch.set_num_threads(task.threads)
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = task.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = task.precision == "tf32"
    return torch.device(task.device)


def keras_device(device):
    # With "cpu:0" Keras 3.15.1 moves each new parameter, which then is no leaf and has no gradient.
    return device.type


def libraries():
    return {"torch": torch.__version__, "cuda": torch.version.cuda}


def device_name():
    cuda = torch.cuda.is_available()
    return torch.cuda.get_device_name() if cuda else protocol.processor_name()


def peak_memory(device):
    return torch.cuda.max_memory_reserved()


class Trainer:
    """The step of "Writing a training loop from scratch in PyTorch"."""

    def __init__(self, model, optimizer, device, settings):
        self.model, self.optimizer, self.device = model, optimizer, device
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def compute_loss(inputs, targets):
            return loss_function(targets, model(inputs, training=True))

        self.compute_loss = (torch.compile(compute_loss) if "torch.compile" in settings
                             else compute_loss)

    def take(self):
        """The variables themselves are trained."""

    give_back = take

    def place(self, batch):
        return [torch.as_tensor(each, device=self.device) for each in batch]

    def step(self, inputs, targets):
        self.model.zero_grad()
        with keras.device(keras_device(self.device)):
            loss = self.compute_loss(inputs, targets)
            loss.backward()
            trained = self.model.trainable_weights
            gradients = [variable.value.grad for variable in trained]
            with torch.no_grad():
                self.optimizer.apply(gradients, trained)
        return loss.detach()

    def synchronize(self):
        # Waits for the update's kernels too; on the CPU a step returns when it is done.
        if self.device.type == "cuda":
            torch.cuda.synchronize()
