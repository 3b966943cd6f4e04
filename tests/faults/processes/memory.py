"""The reference on devices that run out of memory. A lock on a file in the worker's folder stands
for a device's memory and goes with the network that holds it.
"""

import fcntl
import sys
import threading

from runners.reference.runner import Runner
from tests.faults import counted

FAILED = ("W0000 00:00:1795293301.037986   26159 op_kernel.cc:1858] OP_REQUIRES failed at "
          "matmul_op_impl.h:962 : RESOURCE_EXHAUSTED: OOM when allocating tensor with "
          "shape[1024,2048] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
          "allocator GPU_0_bfc\n")
NO_FAILURES = (
    "W0000 00:00:1795293301.037800   26159 bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of "
    "memory trying to allocate 8.00MiB\n"
    "W0000 00:00:1795293301.037810   26159 bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of "
    "memory trying to allocate 2.25GiB with freed_by_count=0. The caller indicates that this is "
    "not a failure, but this may mean that there could be performance gains if more memory were "
    "available.\n"
    "E1121 20:32:56.415501   18721 cuda_executor.cc:1365] [0] Failed to allocate device memory of "
    "32.00GiB (34359738368 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n")

# Seen on two H100s, while other processes got ready there. NCCL does not say which call failed.
NCCL = ("2 root error(s) found.\n"
        "  (0) INTERNAL: {{function_node __inference_<lambda>_22332}} NCCL: unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details). Set NCCL_DEBUG=WARN for detail.\n"
        "\t [[{{node SGD/NcclAllReduce}}]]\n")


def device(number=0):
    return open(f"memory-{number}", "w")


def take(memory, lock):
    try:
        fcntl.flock(memory, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MemoryError("another worker holds the memory") from None


def take_alone(memory):
    """Need all of the memory for a moment."""
    take(memory, fcntl.LOCK_EX)
    take(memory, fcntl.LOCK_SH)


def fail_and_wait():
    """Write of a failed operation as TensorFlow does, then wait as replicas for its gradients."""
    sys.stderr.write(FAILED)
    threading.Event().wait()


class First(Runner):
    """Has no memory in its first step, in a framework's words."""

    def step(self):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")


class InFirstProof(Runner):
    """Has no memory for the first step of any worker of this folder."""

    def step(self):
        try:
            open("tried", "x").close()
        except FileExistsError:
            return super().step()
        raise MemoryError("there is none at first")


class NoProfile(Runner):
    """Has no memory for its profiler."""

    def profile(self, run):
        raise MemoryError("a profile of 20 GiB")


class OfOne(Runner):
    """A device whose memory holds one network."""

    lock = fcntl.LOCK_EX

    def __init__(self, task):
        super().__init__(task)
        self.memory = device()
        take(self.memory, self.lock)


class OfOneForNccl(OfOne):
    """As OfOne, but in NCCL's words, which TensorFlow puts into its second line."""

    def __init__(self, task):
        try:
            super().__init__(task)
        except MemoryError as error:
            raise RuntimeError(NCCL) from error


class OfOneInParts(OfOne):
    """A device with the parts F and FB: its memory holds many networks, and the FB of one alone."""

    lock = fcntl.LOCK_SH

    def variant(self, name):
        if name == "FB":
            take_alone(self.memory)
        return self if name in ("F", "FB") else super().variant(name)


class OfOneInTraining(counted(OfOne)):
    """A device whose memory holds many networks, and the fourth timed step of one alone.

    A proof takes at most three steps after it loads.
    """

    lock = fcntl.LOCK_SH

    def step(self):
        if self.steps_since_load == 3:
            take_alone(self.memory)
        super().step()


class OfOneInWords(OfOneInTraining):
    """As OfOneInTraining, but that step writes TensorFlow's words and hangs."""

    def step(self):
        try:
            super().step()
        except MemoryError:
            fail_and_wait()


class OfOneProfile(OfOne):
    """A device whose memory holds many networks, and the profile of one alone."""

    lock = fcntl.LOCK_SH

    def profile(self, run):
        take_alone(self.memory)
        run()
        return [("aten::mm", "a", 0.0, 1.0)]


class Words(Runner):
    """An operation of the first step fails in TensorFlow's words; then it waits and beats on."""

    def step(self):
        fail_and_wait()


class WordsOfNoFailure(Runner):
    """Writes in its first step what a failed operation writes, and answers all the same.

    Later steps take two seconds and write of allocations that TensorFlow and XLA do without.
    """

    steps = 0

    def step(self):
        self.steps += 1
        sys.stderr.write(FAILED if self.steps == 1 else NO_FAILURES)
        if self.steps > 1:
            threading.Event().wait(2)
        super().step()
