"""The reference as if on a GPU: each step launches kernels through `tests/fake_cupti`."""

import copy
import importlib.util

from runners.reference.runner import Runner as Reference
from tests.faults import engines

KERNEL = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma_execute_kernel__5x_cublas"


class OnGpu:
    """Goes before the reference's Runner: steps launch kernels if the environment has `cupti`."""

    def __init__(self, task):
        on_cpu = copy.copy(task)
        on_cpu.device = "cpu"
        super().__init__(on_cpu)
        self.clock = 1000  # nanoseconds

    def step(self):
        super().step()
        if importlib.util.find_spec("cupti"):
            launch(self)


class Runner(OnGpu, Reference):
    pass


class Engine(engines.Good):
    """An engine that does in a call what the runner does in a step."""

    clock = 1000

    def step(self):
        super().step()
        if importlib.util.find_spec("cupti"):
            launch(self)


def launch(runner):
    """What a step seems to do on its GPU: a copy of its batch, a matrix product, a memset."""
    from cupti import cupti

    kinds = cupti.ActivityKind
    inputs = runner.ring[0][0] if isinstance(runner.ring[0], tuple) else runner.ring[0]
    cupti.launch(kinds.MEMCPY, runner.clock, runner.clock + 100, copy_kind=1, bytes=inputs.size * 4)
    cupti.launch(kinds.CONCURRENT_KERNEL, runner.clock + 50, runner.clock + 300, name=KERNEL)
    cupti.launch(kinds.MEMSET, runner.clock + 400, runner.clock + 410, bytes=8)
    runner.clock += 500
