"""One NVIDIA GPU as a source of telemetry: bytes, joules, watts and megahertz.

Readings are `fast` (50 Hz), `slow`, or `sampled` for drivers without PCIe counters. Calls that take
milliseconds are made at edges of windows only. A lost GPU becomes a row, never an exception.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from harness.machine import nvml
from harness.machine.nvml import Field, ask
from harness.telemetry.cumulative import Count, Integral, joined, pcie_bytes_per_second
from harness.telemetry.gpm import Gpm

# Field numbers of nvml.h: older releases of nvidia-ml-py do not name all of them.
ALL_LINKS = 0xFFFFFFFF
FIELDS: dict[str, Field] = {
    "pcie_rx_bytes": 198, "pcie_tx_bytes": 197, "power": 186,
    "nvlink_rx_bytes": (139, ALL_LINKS), "nvlink_tx_bytes": (138, ALL_LINKS),
}
# Column: link, bytes of one count.
COUNTED = {"pcie_rx_bytes": ("pcie", 1), "pcie_tx_bytes": ("pcie", 1),
           "nvlink_rx_bytes": ("nvlink", 1024), "nvlink_tx_bytes": ("nvlink", 1024)}
DIRECTIONS = {"pcie_rx_bytes": pynvml.NVML_PCIE_UTIL_RX_BYTES,
              "pcie_tx_bytes": pynvml.NVML_PCIE_UTIL_TX_BYTES}
KILOBYTE = 1000
# Only every fifth fast reading asks for clocks and event reasons.
CLOCKS_EVERY = 5


@contextmanager
def opened(count: int, visible: str | None,
           in_use: Callable[[], bool] = lambda: False) -> Iterator[list["Gpu"]]:
    """Open the first `count` GPUs in CUDA_VISIBLE_DEVICES (`visible`), as gpu0, gpu1 ...

    Nothing is closed while a driver call is still pending (`in_use`).
    """
    with nvml.handles(in_use) as found:
        uuids = [ask("nvmlDeviceGetUUID", handle) or "" for handle in found]
        seen = nvml.visible_indices(visible, uuids)
        gpus = [Gpu(found[index], f"gpu{number}") for number, index in enumerate(seen[:count])]
        try:
            yield gpus
        finally:
            for gpu in gpus if not in_use() else []:
                gpu.gpm.close()


class Gpu:
    """One GPU, asked through its NVML handle."""

    def __init__(self, handle: Any, name: str, clock: Callable[[], float] = time.monotonic):
        self.handle = handle
        self.name = name
        self.clock = clock
        self.readings = {"fast": self.read_moving, "slow": self.read_use}
        self.edges = {"fast": self.read_counters, "slow": self.read_state}
        self.fields = {column: field for column, field in FIELDS.items()
                       if nvml.supports(handle, field)}
        # NVLink's counters take 2 ms a call on an H200; with 64 bits none wraps between edges.
        self.moving = {column: field for column, field in self.fields.items()
                       if not column.startswith("nvlink")}
        # The maximum, because an idle link runs slower.
        self.link = pcie_bytes_per_second(ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
                                          ask("nvmlDeviceGetMaxPcieLinkWidth", handle))
        self.gpm = Gpm(handle)
        self.pcie: str | None = None
        self.power: str | None = None
        self.nvlink = "counters" if "nvlink_tx_bytes" in self.fields else None
        if {"pcie_rx_bytes", "pcie_tx_bytes"} <= self.fields.keys():
            self.pcie = "counters"
        elif ask("nvmlDeviceGetPcieThroughput", handle, DIRECTIONS["pcie_rx_bytes"]) is not None:
            self.pcie = "20 ms samples of throughput"
            self.readings["sampled"] = self.sample_throughput
        if "power" in self.fields:
            self.power = "instantaneous, integrated"
        elif ask("nvmlDeviceGetPowerUsage", handle) is not None:
            self.power = "averaged by the driver, integrated"
        self.restart()

    @property
    def not_measured(self) -> list[str]:
        sources = {"PCIe bytes": self.pcie, "NVLink bytes": self.nvlink, "energy": self.power}
        return [f"{what} of {self.name}: its driver does not support them"
                for what, source in sources.items() if not source]

    def describe(self) -> dict[str, Any]:
        """Describe for campaign.json where each number comes from."""
        return {"device": self.name, "pcie": self.pcie, "pcie_bytes_per_second": round(self.link),
                "nvlink": self.nvlink, "power": self.power, "gpm": self.gpm.supported}

    def restart(self) -> None:
        """Begin all totals anew."""
        self.counts: dict[str, Count] = {}
        self.joules = Integral()
        self.sampled = dict.fromkeys(DIRECTIONS, 0.0)
        self.sampled_until: dict[str, float] = {}
        self.covered_seconds = 0.0
        self.turn = 0
        self.held: dict[int, int] = {}  # most bytes by process
        self.gpm.restart()

    def read_counters(self, seconds: float) -> dict[str, Any]:
        """Read bytes and joules since `restart`, power, clocks and event reasons."""
        return self._read(self.fields, seconds, True)

    def read_moving(self, seconds: float) -> dict[str, Any]:
        """Read PCIe bytes, joules and power; now and then clocks and event reasons too."""
        self.turn += 1
        return self._read(self.moving, seconds, self.turn % CLOCKS_EVERY == 0)

    def read_state(self, seconds: float) -> dict[str, Any]:
        """Read the energy counter (4 ms a call) and everything that `read_use` reads."""
        millijoules = ask("nvmlDeviceGetTotalEnergyConsumption", self.handle)
        joules = None if millijoules is None else millijoules / 1000
        return {"energy_counter_joules": joules, **self.read_use(seconds)}

    def read_use(self, seconds: float) -> dict[str, Any]:
        """Read memory, utilisation, the number of compute processes, and GPM's averages."""
        memory = ask("nvmlDeviceGetMemoryInfo", self.handle)
        use = ask("nvmlDeviceGetUtilizationRates", self.handle)
        processes = ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        for each in processes or ():
            # Unknown in a MIG slice, and to a container of other processes' numbers.
            if each.usedGpuMemory is not None:
                self.held[each.pid] = max(each.usedGpuMemory, self.held.get(each.pid, 0))
        return {
            "memory_used_bytes": memory and memory.used, "busy_percent": use and use.gpu,
            "processes": None if processes is None else len(processes), **self.gpm.read(seconds),
        }

    def _read(self, fields: dict[str, Field], seconds: float, with_clocks: bool) -> dict[str, Any]:
        try:
            read = nvml.read_fields(self.handle, fields)
        except pynvml.NVMLError as error:
            return self._lost(str(error))
        if len(read) < len(fields):
            return self._lost(f"{', '.join(fields.keys() - read.keys())} could not be read")
        row, broken = self._bytes(read, seconds)
        milliwatts = (read["power"][0] if "power" in read
                      else ask("nvmlDeviceGetPowerUsage", self.handle))
        if milliwatts is not None:
            row["power_watts"] = milliwatts / 1000
            broken["energy"] = self.joules.add(row["power_watts"], seconds)
            row["energy_joules"] = self.joules.total
        if with_clocks:
            row["sm_mhz"] = ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM)
            row["memory_mhz"] = ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_MEM)
            row["event_reasons"] = nvml.event_reasons(self.handle)
        return {**row, "broken": joined(broken)}

    def sample_throughput(self, seconds: float) -> dict[str, Any]:
        """Sample the PCIe throughput, which blocks for 20 ms a direction.

        The time between two samples counts at the later one's rate.
        """
        ended = self.clock()
        for column, counter in DIRECTIONS.items():
            began = self.clock()
            kilobytes = ask("nvmlDeviceGetPcieThroughput", self.handle, counter)
            ended = self.clock()
            if kilobytes is None:
                self.sampled_until = {}
                return {"broken": "pcie: the throughput could not be read"}
            since = self.sampled_until.get(column, began)
            self.sampled[column] += kilobytes * KILOBYTE * (ended - since)
            self.sampled_until[column] = ended
            self.covered_seconds += (ended - began) / len(DIRECTIONS)
        totals = {column: round(total) for column, total in self.sampled.items()}
        return {"seconds": ended, **totals, "pcie_covered_seconds": self.covered_seconds}

    def _bytes(self, read: dict[str, tuple[float, bool]],
               seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Add the counters' readings to their totals. Returns a row, and what is broken by link."""
        row: dict[str, Any] = {}
        broken: dict[str, str] = {}
        for column, (link, unit) in COUNTED.items():
            if column in read and (link != "pcie" or self.pcie == "counters"):
                value, short = read[column]
                if column not in self.counts:
                    fastest = self.link if link == "pcie" else None
                    self.counts[column] = Count(2.0**32 * unit if short else None, fastest)
                why = self.counts[column].add(value * unit, seconds)
                broken[link] = why or broken.get(link, "")
                row[column] = round(self.counts[column].total)
        return row, broken

    def _lost(self, why: str) -> dict[str, Any]:
        """Return a row without readings; totals go on from the next reading."""
        for count in self.counts.values():
            count.last = None
        self.joules.last = None
        return {"broken": f"gpu: {why}"}
