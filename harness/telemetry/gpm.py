"""GPU performance monitoring (Hopper and newer): averages between two samples.

One GPU is asked at a time: NVML is reported to crash when threads sample different GPUs at once
(DataDog/datadog-agent pull 54458). It probably ended a campaign with driver 580.
"""

import threading
import time
from contextlib import suppress
from typing import Any

import pynvml

from harness.machine.nvml import ask

# The least time between two samples, according to NVIDIA.
APART_SECONDS = 0.1
# How long a GPU waits for another one's answer; its counters must not wait for a driver that hangs.
PATIENCE_SECONDS = 0.1
ONE_AT_A_TIME = threading.Lock()
# nvmlGpmMetricId_t: column, unit.
METRICS = {
    21: ("gpm_pcie_rx_bytes_per_second", 2.0**20), 20: ("gpm_pcie_tx_bytes_per_second", 2.0**20),
    60: ("gpm_nvlink_rx_bytes_per_second", 2.0**20),
    61: ("gpm_nvlink_tx_bytes_per_second", 2.0**20),
    2: ("sm_percent", 1.0), 5: ("tensor_percent", 1.0), 10: ("dram_percent", 1.0),
}


class Gpm:
    """The monitor of one GPU."""

    def __init__(self, handle: Any):
        self.handle = handle
        support = ask("nvmlGpmQueryDeviceSupport", handle)
        count = 2 if support and support.isSupportedDevice else 0
        allocated = [ask("nvmlGpmSampleAlloc") for _ in range(count)]
        self.samples = [sample for sample in allocated if sample is not None]
        self.supported = len(self.samples) == 2
        self.last: float | None = None

    def restart(self) -> None:
        """Forget the last sample."""
        self.last = None

    def read(self, seconds: float) -> dict[str, float]:
        """Read averages since the reading before: nothing at the first one or too soon after it.

        While another GPU does not answer there is nothing either, and averages start anew.
        """
        if not self.supported or (self.last is not None and seconds - self.last < APART_SECONDS):
            return {}
        began = time.monotonic()
        if not ONE_AT_A_TIME.acquire(timeout=PATIENCE_SECONDS):
            self.last = None
            return {}
        try:
            return self._sample(seconds + time.monotonic() - began)
        finally:
            ONE_AT_A_TIME.release()

    def _sample(self, seconds: float) -> dict[str, float]:
        before, self.last = self.last, seconds
        self.samples.reverse()
        try:
            pynvml.nvmlGpmSampleGet(self.handle, self.samples[1])
            return {} if before is None else self._averages()
        except pynvml.NVMLError:
            self.last = None
            return {}

    def _averages(self) -> dict[str, float]:
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2 = self.samples
        asked.numMetrics = len(METRICS)
        for place, metric in enumerate(METRICS):
            asked.metrics[place].metricId = metric
        answered = pynvml.nvmlGpmMetricsGet(asked)
        return {column: round(answered.metrics[place].value * unit, 2)
                for place, (column, unit) in enumerate(METRICS.values())
                if answered.metrics[place].nvmlReturn == pynvml.NVML_SUCCESS}

    def close(self) -> None:
        """Free the samples."""
        for sample in self.samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
