"""Averages gradients between ranks by point-to-point messages, as the tools of 2016 did it.

All gradients lie in one buffer of S bytes, so a message carries S or an n-th of it. Caffe and Torch
kept their parameters so; MXNet and TensorFlow sent each array by itself. In those tools rank 0
updated the parameters and sent them back. Here the mean gradient goes back, which has as many
bytes, and every rank makes the same update. NCCL carries the messages between GPUs: its stream and
ours wait for each other, the host waits for neither. Gloo carries them between CPUs.
"""

import contextlib

import torch
import torch.distributed as dist


class Aggregation:
    """That of one device: nothing. A strategy averages in `aggregate`, or during backward."""

    # Whether forward, backward and aggregation can be timed apart.
    timed_in_parts = True
    # Whether a step fits in a CUDA graph: the host neither waits nor computes in between.
    capturable = True
    # Whether it sends a gradient as soon as the backward pass has it.
    sends_in_backward = False
    # What `tuned` turns on in the strategy.
    tuned_settings = ()
    # As `protocol.Runner` says.
    whole_batch = parted = False

    @classmethod
    def around(cls, model, task):
        """Return what to call in place of `model`, and the strategy that trains it."""
        return model, cls(model, task)

    def aggregate(self):
        """Replace this rank's gradients by the mean over all ranks."""

    def local(self):
        """Return the context in which a backward pass leaves this rank's own gradients."""
        return contextlib.nullcontext()

    def alone(self):
        """Return a function that aggregates buffers of the gradients' shapes."""
        raise NotImplementedError

    def reset(self):
        """Forget what earlier steps have left."""

    def settings(self):
        """Say how the strategy divides this network."""
        return []

    def named(self, names):
        """Return those of our names, and their modules' names, that this rank holds."""
        return names

    def differentiate(self, loss_of, scaler, inputs, targets):
        """Run forward and backward, and return the loss."""
        loss = loss_of(inputs, targets)
        (scaler.scale(loss) if scaler else loss).backward()
        return loss.detach()

    def everybodys(self, loss):
        """Return the loss that this rank answers for."""
        return loss

    def put(self, parameters, weights):
        """Copy weights into the parameters that this rank holds, in place."""
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))

    def whole(self, parameters):
        """Return every parameter of the network, whole."""
        return parameters

    def held(self, parameters):
        """Return how many numbers of each parameter this rank holds, as `protocol.Runner` says."""
        return None


class Messages(Aggregation):
    """Averages one buffer of all gradients of `parameters`; a strategy is a way to `average`."""

    # Each gradient, and each rank's part of the buffer, begins at a multiple of this many elements.
    quantum = 1

    def __init__(self, parameters, task):
        self.parameters, self.rank, self.ranks = parameters, task.rank, task.ranks
        starts, end = layout(parameters, self.quantum)
        whole = self.ranks * self.quantum
        self.flat = torch.zeros(-(-end // whole) * whole, device=parameters[0].device)
        # A fused optimiser reads parameter and gradient in memory order, so strides must agree.
        self.views = [self.flat.as_strided(parameter.shape, parameter.stride(), start)
                      for parameter, start in zip(parameters, starts, strict=True)]

    @classmethod
    def around(cls, model, task):
        return model, cls([each for each in model.parameters() if each.requires_grad], task)

    def aggregate(self):
        means = self.mean([parameter.grad for parameter in self.parameters])
        for parameter, mean in zip(self.parameters, means, strict=True):
            parameter.grad = mean

    def mean(self, gradients):
        """Return the mean of every rank's `gradients`, in memory that the next call reuses."""
        torch._foreach_copy_(self.views, gradients)
        self.average()
        return self.views

    def average(self):
        """Put the mean of all ranks' buffers into this one's."""
        raise NotImplementedError

    def alone(self):
        gradients = [torch.zeros_like(parameter) for parameter in self.parameters]
        return lambda: self.mean(gradients)


class Ring(Messages):
    """Ring all-reduce: n - 1 steps add up, n - 1 steps pass the sums on (Patarasu and Yuan 2009).

    Every rank sends 2 (n - 1) messages of S / n to the next and receives as many.
    """

    # 128 bytes: chunks of AlexNet that began 8 bytes off 16 took twice the predicted time.
    quantum = 32

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.chunks = self.flat.view(self.ranks, -1)  # (n, S / n)
        self.arrived = torch.empty_like(self.chunks[0])

    def average(self):
        n, rank, chunks = self.ranks, self.rank, self.chunks
        after, before = (rank + 1) % n, (rank - 1) % n
        for step in range(n - 1):
            exchange([(chunks[(rank - step) % n], after)], [(self.arrived, before)])
            chunks[(rank - step - 1) % n] += self.arrived
        # The rank now holds the sum of this chunk.
        chunks[after] /= n
        for step in range(n - 1):
            sent, received = chunks[(rank + 1 - step) % n], chunks[(rank - step) % n]
            exchange([(sent, after)], [(received, before)])


class Tree(Messages):
    """Binomial tree, as in Caffe's P2PSync: pairs add up, then pairs of pairs; the mean goes back.

    Messages have S bytes and follow each other: rank 0 receives ceil(log2 n) and sends as many.
    """

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.distances = [2**level for level in range((self.ranks - 1).bit_length())]
        self.arrived = torch.empty_like(self.flat)

    def average(self):
        for distance in self.distances:
            if self._has_parent_at(distance):
                exchange([(self.flat, self.rank - distance)], [])
            elif self._has_child_at(distance):
                exchange([], [(self.arrived, self.rank + distance)])
                self.flat += self.arrived
        if self.rank == 0:
            self.flat /= self.ranks
        for distance in reversed(self.distances):
            if self._has_parent_at(distance):
                exchange([], [(self.flat, self.rank - distance)])
            elif self._has_child_at(distance):
                exchange([(self.flat, self.rank + distance)], [])

    def _has_parent_at(self, distance):
        return self.rank % (2 * distance) == distance

    def _has_child_at(self, distance):
        return self.rank % (2 * distance) == 0 and self.rank + distance < self.ranks


class Gather(Messages):
    """All send to rank 0, which sends the mean to each, as MXNet's `device` and Torch did.

    Messages have S bytes. Rank 0 receives n - 1 at once, a buffer each, and sends n - 1 at once.
    """

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        others = range(1, self.ranks) if self.rank == 0 else []
        self.arrived = {other: torch.empty_like(self.flat) for other in others}

    def average(self):
        if self.rank:
            exchange([(self.flat, 0)], [])
            exchange([], [(self.flat, 0)])
            return
        exchange([], [(arrived, other) for other, arrived in self.arrived.items()])
        for arrived in self.arrived.values():
            self.flat += arrived
        self.flat /= self.ranks
        exchange([(self.flat, other) for other in self.arrived], [])


def exchange(sends, receives):
    """Start all messages, (tensor, other rank) each, and wait; with NCCL only the stream waits."""
    messages = [dist.P2POp(dist.isend, tensor, other) for tensor, other in sends]
    messages += [dist.P2POp(dist.irecv, tensor, other) for tensor, other in receives]
    # A single rank has none.
    if messages:
        for work in dist.batch_isend_irecv(messages):
            work.wait()


def layout(parameters, quantum):
    """Return where each parameter begins in the buffer, in elements, and where the last ends."""
    starts, end = [], 0
    for parameter in parameters:
        start = -(-end // quantum) * quantum
        starts.append(start)
        end = start + parameter.numel()
    return starts, end
