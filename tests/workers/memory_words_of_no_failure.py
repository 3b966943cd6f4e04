"""Writes in its first step what a failed operation writes, and answers all the same.

Later steps take two seconds and write of allocations that TensorFlow and XLA do without.
"""

import sys
import threading

from runners.reference.runner import Runner as Reference
from tests.workers.memory_words import FAILED

NO_FAILURES = """\
W0000 00:00:1795293301.037800   26159 bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying to allocate 8.00MiB
W0000 00:00:1795293301.037810   26159 bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB \
with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if \
more memory were available.
E1121 20:32:56.415501   18721 cuda_executor.cc:1365] [0] Failed to allocate device memory of 32.00GiB (34359738368 bytes): \
RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory
"""


class Runner(Reference):
    steps = 0

    def step(self):
        self.steps += 1
        sys.stderr.write(FAILED if self.steps == 1 else NO_FAILURES)
        if self.steps > 1:
            threading.Event().wait(2)
        super().step()
