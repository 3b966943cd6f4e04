"""The reference with a process a device, right and with one fault each.

Rank 0 averages everybody's gradients on a socket in the worker's folder.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Client, Listener

import numpy as np

from runners import wire
from runners.protocol import Unsupported
from runners.reference.runner import Runner as Reference
from tests.faults import counted
from tests.faults.processes import memory
from tests.faults.processes.traced import OnGpu


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        self.task = task
        self.others = []
        if task.ranks == 1:
            return
        address = os.path.join(os.environ["TMPDIR"], "ranks")
        if task.rank == 0:
            with Listener(address, "AF_UNIX", backlog=task.ranks) as listener:
                self.others = [listener.accept() for _ in range(task.ranks - 1)]
        else:
            self.others = [connected(address)]

    def step(self):
        for name, gradient in self.averaged(self.of_own_rows()).items():
            self.update(name, gradient)
        self.track()

    def barrier(self):
        self.averaged({})

    def of_own_rows(self):
        x, targets = self.ring[self.position % len(self.ring)]
        self.position += 1
        self.last_loss, gradients = self.differentiate(x, targets)
        return dict(gradients)

    def averaged(self, gradients):
        if self.task.rank:
            self.others[0].send(gradients)
            return self.others[0].recv()
        for theirs in [other.recv() for other in self.others]:
            gradients = {name: gradient + theirs[name] for name, gradient in gradients.items()}
        gradients = {name: gradient / self.task.ranks for name, gradient in gradients.items()}
        for other in self.others:
            other.send(gradients)
        return gradients


def connected(address):
    """Connect to rank 0, which may come a moment later."""
    while True:
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)


class Hang(Runner):
    """Rank 1 hangs in its first step, its heart still beating; the others wait for it."""

    def step(self):
        if self.task.rank == 1:
            threading.Event().wait()
        super().step()


class Killed(Runner):
    """Rank 1 is killed in its ninth step, the first that is not one of the single ones."""

    def step(self):
        if self.task.rank == 1 and self.position == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step()


class Memory(Runner):
    """Devices whose memory holds one network each."""

    def __init__(self, task):
        self.memory = memory.device(task.rank)
        memory.take(self.memory, fcntl.LOCK_EX)
        super().__init__(task)


class Lively(Runner):
    """Each rank sends its heartbeats often."""

    def __init__(self, task):
        wire.HEARTBEAT_SECONDS = 0.1
        super().__init__(task)


class MemoryWords(Runner):
    """An operation of rank 1 fails in its first step in TensorFlow's words; all wait."""

    def step(self):
        if self.task.rank == 1:
            memory.fail_and_wait()
        super().step()


class NoCopies(Runner):
    """Answers no copies, so nothing can be said of whether they are equal."""

    def copies(self):
        return []


class OneFrozen(Runner):
    """No gradient of one tensor arrives, its own neither."""

    def update(self, name, gradient):
        super().update(name, gradient * (name != "dense1.bias"))


class Orphan(Runner):
    """Each rank starts a process in a session of its own, which nobody ends for it."""

    def __init__(self, task):
        super().__init__(task)
        wait = "import threading; threading.Event().wait()"
        subprocess.Popen([sys.executable, "-c", wait], start_new_session=True)


class Parts(Runner):
    """Offers parts of its step, all but the aggregation alone."""

    def variant(self, name):
        parts = {"F": self.look, "FB": self.of_own_rows, "FBAU": self.step,
                 "FBA": lambda: self.averaged(self.of_own_rows())}
        if name not in parts:
            raise Unsupported(f"sums on a socket have no '{name}'")
        return Part(parts[name])

    def look(self):
        self.forward(self._place(self.ring[0][0]))


class Part:
    def __init__(self, step):
        self.step = step

    def synchronize(self):
        pass  # NumPy returns when it is done


class PartsMemory(Parts):
    """Offers all parts, but rank 1 has no memory for the buffers of the aggregation alone."""

    def variant(self, name):
        if name != "A":
            return super().variant(name)
        if self.task.rank == 1:
            raise MemoryError("no buffers")
        return Part(self.barrier)


class PartsStuck(Parts):
    """Offers all parts; rank 1 fails or refuses while A runs, and rank 0 waits for it."""

    def variant(self, name):
        return Part(self.alone) if name == "A" else super().variant(name)

    def alone(self):
        if self.task.rank == 1:
            memory_short = os.environ["PLANTED"] == "memory"
            raise MemoryError("no buffers") if memory_short else Unsupported("no aggregation alone")
        self.barrier()


class Raises(Runner):
    """Rank 1 raises in its first step; the others wait for its gradients."""

    def step(self):
        if self.task.rank == 1:
            raise RuntimeError("the first step is broken")
        super().step()


class Refuses(Runner):
    """Rank 0 refuses its first step; the others wait for its gradients."""

    def step(self):
        if self.task.rank == 0:
            raise Unsupported("no collective here")
        super().step()


class Rounds(Runner):
    """Rank 1 holds every parameter one unit in the last place off."""

    def copies(self):
        own, = super().copies()
        up = np.float32(np.inf)
        return [{name: np.nextafter(value.astype(np.float32), up) if self.task.rank else value
                 for name, value in own.items()}]


class SameRows(Runner):
    """Rank 1 reads the rows of rank 0, as without a sampler that knows its rank."""

    def feed(self, inputs, targets, residence):
        super().feed(self.of_rank_0(inputs), self.of_rank_0(targets), residence)

    def of_rank_0(self, array):
        """Rank 0 adds nothing to what the others get; they add their rows times zero."""
        rows = {"rows": array if self.task.rank == 0 else np.zeros_like(array)}
        return (self.task.ranks * self.averaged(rows)["rows"]).astype(array.dtype)


class Stale(Runner):
    """Rank 1 misses its sixth update, the last of a proof."""

    missed = 5

    def step(self):
        before = self.parameters()
        super().step()
        if self.task.rank == 1 and self.position == self.missed + 1:
            self.weights.update(before)


class StaleLate(Stale):
    """Rank 1 misses an update long after the check."""

    missed = 9


class Unsent(counted(Runner)):
    """The ranks send their first two steps' gradients, and nothing of those after."""

    def averaged(self, gradients):
        mean = super().averaged(gradients)
        return {name: gradient * (self.steps_since_load < 2) for name, gradient in mean.items()}


class Sum(Runner):
    """Adds the ranks' gradients up, as a loss that each rank divides by its own batch invites."""

    def averaged(self, gradients):
        mean = super().averaged(gradients)
        return {name: self.task.ranks * gradient for name, gradient in mean.items()}


class Traced(OnGpu, Runner):
    """Seems to run on GPUs."""
