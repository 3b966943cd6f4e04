"""One NVIDIA GPU as a source of telemetry: its counters and sensors as bytes, joules, watts and megahertz.

Readings are `fast`, cheap enough for 50 Hz, or `slow`, or `sampled`: the fall-back of drivers without PCIe counters. What takes
milliseconds to ask is asked at edges only. What a GPU cannot tell is left out and said once in `not_measured`; a GPU that is lost
is a row that says so, never an exception.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from harness.machine.nvml import (
    Field,
    ask,
    event_reasons,
    handles,
    read_fields,
    supports,
    visible_indices,
)
from harness.telemetry.cumulative import Count, Integral, joined, pcie_bytes_per_second
from harness.telemetry.gpm import Gpm

# Field numbers of nvml.h; as numbers, because older releases of nvidia-ml-py do not name all of them.
ALL_LINKS = 0xFFFFFFFF
FIELDS: dict[str, Field] = {
    "pcie_rx_bytes": 198, "pcie_tx_bytes": 197, "nvlink_rx_bytes": (139, ALL_LINKS), "nvlink_tx_bytes": (138, ALL_LINKS),
    "power": 186,  # POWER_INSTANT
}
COUNTED = {"pcie_rx_bytes": ("pcie", 1), "pcie_tx_bytes": ("pcie", 1),  # column: link, bytes of one count
           "nvlink_rx_bytes": ("nvlink", 1024), "nvlink_tx_bytes": ("nvlink", 1024)}
KILOBYTE = 1000
CLOCKS_EVERY = 5  # fast readings, of which only each so many asks for clocks and event reasons too


@contextmanager
def opened(count: int, visible: str | None, in_use: Callable[[], bool] = lambda: False) -> Iterator[list["Gpu"]]:
    """Give the first `count` GPUs that CUDA sees where CUDA_VISIBLE_DEVICES is `visible`, named gpu0, gpu1 ... as CUDA does.

    Where one still owes somebody an answer at the end (`in_use`), nothing is closed under it.
    """
    with handles(in_use) as found:
        seen = visible_indices(visible, [ask("nvmlDeviceGetUUID", handle) or "" for handle in found])
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
        self.fields = {column: field for column, field in FIELDS.items() if supports(handle, field)}
        # NVLink's counters take 2 ms a call on an H200 and have 64 bits, so nothing is lost between edges.
        self.moving = {column: field for column, field in self.fields.items() if COUNTED.get(column, ("", 1))[0] != "nvlink"}
        self.link = pcie_bytes_per_second(ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),  # an idle link runs slower
                                          ask("nvmlDeviceGetMaxPcieLinkWidth", handle))
        self.gpm = Gpm(handle)
        self.pcie: str | None = None
        self.power: str | None = None
        self.nvlink = "counters" if "nvlink_tx_bytes" in self.fields else None
        if {"pcie_rx_bytes", "pcie_tx_bytes"} <= self.fields.keys():
            self.pcie = "counters"
        elif ask("nvmlDeviceGetPcieThroughput", handle, pynvml.NVML_PCIE_UTIL_RX_BYTES) is not None:
            self.pcie = "20 ms samples of throughput"
            self.readings["sampled"] = self.sample_throughput
        if "power" in self.fields:
            self.power = "instantaneous, integrated"
        elif ask("nvmlDeviceGetPowerUsage", handle) is not None:
            self.power = "averaged by the driver, integrated"
        self.restart()

    @property
    def not_measured(self) -> list[str]:
        told = {"PCIe bytes": self.pcie, "NVLink bytes": self.nvlink, "energy": self.power}
        return [f"{what} of {self.name}: its driver does not support them" for what, source in told.items() if not source]

    def describe(self) -> dict[str, Any]:
        """Say for campaign.json where each number comes from."""
        return {"device": self.name, "pcie": self.pcie, "pcie_bytes_per_second": round(self.link), "nvlink": self.nvlink,
                "power": self.power, "gpm": self.gpm.supported}

    def restart(self) -> None:
        """Begin all totals anew."""
        self.counts: dict[str, Count] = {}
        self.joules = Integral()
        self.sampled = {column: 0.0 for column, (link, _) in COUNTED.items() if link == "pcie"}
        self.sampled_until: dict[str, float] = {}
        self.covered_seconds = 0.0
        self.turn = 0
        self.gpm.restart()

    def read_counters(self, seconds: float) -> dict[str, Any]:
        """Read bytes and joules since `restart`, power, clocks and event reasons."""
        return self._read(self.fields, seconds, True)

    def read_moving(self, seconds: float) -> dict[str, Any]:
        """Read what moves fast: PCIe bytes, joules and power; clocks and event reasons each `CLOCKS_EVERY`th time."""
        self.turn += 1
        return self._read(self.moving, seconds, self.turn % CLOCKS_EVERY == 0)

    def read_state(self, seconds: float) -> dict[str, Any]:
        """Read the energy counter (4 ms a call) and everything that `read_use` reads."""
        millijoules = ask("nvmlDeviceGetTotalEnergyConsumption", self.handle)
        return {"energy_counter_joules": None if millijoules is None else millijoules / 1000, **self.read_use(seconds)}

    def read_use(self, seconds: float) -> dict[str, Any]:
        """Read memory, use, how many processes compute here, and GPM's averages."""
        memory = ask("nvmlDeviceGetMemoryInfo", self.handle)
        use = ask("nvmlDeviceGetUtilizationRates", self.handle)
        processes = ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        return {
            "memory_used_bytes": memory and memory.used, "busy_percent": use and use.gpu,
            "processes": None if processes is None else len(processes), **self.gpm.read(seconds),
        }

    def _read(self, fields: dict[str, Field], seconds: float, with_clocks: bool) -> dict[str, Any]:
        try:
            read = read_fields(self.handle, fields)
        except pynvml.NVMLError as error:
            return self._lost(str(error))
        if len(read) < len(fields):
            return self._lost(f"{', '.join(fields.keys() - read.keys())} could not be read")
        row, broken = self._bytes(read, seconds)
        milliwatts = read["power"][0] if "power" in read else ask("nvmlDeviceGetPowerUsage", self.handle)
        if milliwatts is not None:
            row["power_watts"] = milliwatts / 1000
            broken["energy"] = self.joules.add(row["power_watts"], seconds)
            row["energy_joules"] = self.joules.total
        if with_clocks:
            row["sm_mhz"] = ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM)
            row["memory_mhz"] = ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_MEM)
            row["event_reasons"] = event_reasons(self.handle)
        return {**row, "broken": joined(broken)}

    def sample_throughput(self, seconds: float) -> dict[str, Any]:
        """Sample the PCIe throughput, blocking 20 ms a direction; the time between two samples is taken to be like the later."""
        ended = self.clock()
        directions = {"pcie_rx_bytes": pynvml.NVML_PCIE_UTIL_RX_BYTES, "pcie_tx_bytes": pynvml.NVML_PCIE_UTIL_TX_BYTES}
        for column, counter in directions.items():
            began = self.clock()
            kilobytes = ask("nvmlDeviceGetPcieThroughput", self.handle, counter)
            ended = self.clock()
            if kilobytes is None:
                self.sampled_until = {}
                return {"broken": "pcie: the throughput could not be read"}
            self.sampled[column] += kilobytes * KILOBYTE * (ended - self.sampled_until.get(column, began))
            self.sampled_until[column] = ended
            self.covered_seconds += (ended - began) / 2  # of two directions
        return {"seconds": ended, **{column: round(total) for column, total in self.sampled.items()},
                "pcie_covered_seconds": self.covered_seconds}

    def _bytes(self, read: dict[str, tuple[float, bool]], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Add the counters' readings to their totals; which of them are broken stands beside."""
        row: dict[str, Any] = {}
        broken: dict[str, str] = {}
        for column, (link, unit) in COUNTED.items():
            if column in read and (link != "pcie" or self.pcie == "counters"):
                value, short = read[column]
                if column not in self.counts:
                    self.counts[column] = Count(2.0**32 * unit if short else None, self.link if link == "pcie" else None)
                broken[link] = self.counts[column].add(value * unit, seconds) or broken.get(link, "")
                row[column] = round(self.counts[column].total)
        return row, broken

    def _lost(self, why: str) -> dict[str, Any]:
        """Say that nothing was read; totals go on from the next reading, and what happened between is not known."""
        for count in self.counts.values():
            count.last = None
        self.joules.last = None
        return {"broken": f"gpu: {why}"}
