"""GPU performance monitoring, which Hopper and newer GPUs have: exact averages between two samples, to check the counters by.

One GPU at a time is asked: NVML is reported to crash where threads sample different GPUs at once (DataDog/datadog-agent pull
54458). That probably ended a campaign of ours, with a thread a GPU and driver 580, in a segmentation fault in its first minute.
"""

import threading
import time
from contextlib import suppress
from typing import Any

import pynvml

from harness.machine.nvml import ask

APART_SECONDS = 0.1  # what NVIDIA asks for between two samples
PATIENCE_SECONDS = 0.1  # for another GPU's answer; with a driver that hangs, this GPU's counters must not wait for it
ONE_AT_A_TIME = threading.Lock()
METRICS = {  # nvmlGpmMetricId_t: column, unit
    21: ("gpm_pcie_rx_bytes_per_second", 2.0**20), 20: ("gpm_pcie_tx_bytes_per_second", 2.0**20),
    60: ("gpm_nvlink_rx_bytes_per_second", 2.0**20), 61: ("gpm_nvlink_tx_bytes_per_second", 2.0**20),
    2: ("sm_percent", 1.0), 5: ("tensor_percent", 1.0), 10: ("dram_percent", 1.0),
}


class Gpm:
    """The monitor of one GPU."""

    def __init__(self, handle: Any):
        self.handle = handle
        support = ask("nvmlGpmQueryDeviceSupport", handle)
        allocated = [ask("nvmlGpmSampleAlloc") for _ in range(2)] if support and support.isSupportedDevice else []
        self.samples = [sample for sample in allocated if sample is not None]
        self.supported = len(self.samples) == 2
        self.last: float | None = None

    def restart(self) -> None:
        """Forget the last sample."""
        self.last = None

    def read(self, seconds: float) -> dict[str, float]:
        """Read averages since the reading before.

        Nothing at the first one, too soon after it, where GPM is not there and while another GPU does not answer; after that
        averages begin anew, for one over two rows would be taken for the later one's.
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
        self.samples.reverse()  # the older one is filled anew
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
        return {column: round(metric.value * unit, 2) for metric, (column, unit) in
                ((answered.metrics[place], told) for place, told in enumerate(METRICS.values()))
                if metric.nvmlReturn == pynvml.NVML_SUCCESS}

    def close(self) -> None:
        """Give the samples' memory back."""
        for sample in self.samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
