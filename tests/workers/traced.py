"""The reference under a name of the tests' own, as if it ran on a GPU: each step launches kernels through `tests/fake_cupti`."""

import copy

from runners.reference_runner import Runner as Reference

KERNEL = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma_execute_kernel__5x_cublas"


class Runner(Reference):
    def __init__(self, task):
        on_cpu = copy.copy(task)
        on_cpu.device = "cpu"
        super().__init__(on_cpu)
        self.clock = 1000  # nanoseconds

    def step(self):
        super().step()
        from cupti import cupti

        kinds = cupti.ActivityKind
        inputs, _ = self.ring[0]
        cupti.launch(kinds.MEMCPY, self.clock, self.clock + 100, copy_kind=1, bytes=inputs.size * 4)
        cupti.launch(kinds.CONCURRENT_KERNEL, self.clock + 50, self.clock + 300, name=KERNEL)
        cupti.launch(kinds.MEMSET, self.clock + 400, self.clock + 410, bytes=8)
        self.clock += 500
