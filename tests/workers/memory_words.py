"""An operation of its first step fails as TensorFlow says it; then it waits, as replicas for that one's gradients, and beats on."""

import sys
import threading

from runners.reference.runner import Runner as Reference

FAILED = ("W0000 00:00:1795293301.037986   26159 op_kernel.cc:1858] OP_REQUIRES failed at matmul_op_impl.h:962 : "
          "RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[1024,2048] and type float on "
          "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n")


class Runner(Reference):
    def step(self):
        fail_and_wait()


def fail_and_wait():
    sys.stderr.write(FAILED)
    threading.Event().wait()
