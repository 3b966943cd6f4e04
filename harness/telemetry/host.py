"""The host as a source of telemetry: processor time, memory, network bytes, and RAPL's energy."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from harness.telemetry.cumulative import Count

# RAPL's `core` and `uncore` lie within the package, `psys` contains it.
ENERGY_ZONES = ("package", "dram")


class Host:
    """This machine without its GPUs. `root` is the folder that holds `sys`."""

    name = "host"

    def __init__(self, root: Path = Path("/")):
        self.root = root
        self.zones, self.not_measured = _energy_zones(root)
        self.readings: dict[str, Callable[[float], dict[str, Any]]] = {
            "slow": self.read_use, "own": self.read_shares}
        self.edges: dict[str, Callable[[float], dict[str, Any]]] = {}
        if self.zones:
            self.readings["fast"] = self.read_energy
        self.restart()

    def describe(self) -> dict[str, Any]:
        """Describe for campaign.json where the energy comes from."""
        zones = [(zone / "name").read_text().strip() for zone in self.zones]
        return {"device": self.name, "energy": zones or None}

    def restart(self) -> None:
        """Begin all totals anew."""
        self.microjoules = {zone: Count(wraps_at) for zone, wraps_at in self.zones.items()}

    def read_network(self) -> dict[str, int]:
        """Read what network interfaces but the loopback, and InfiniBand's ports, have carried.

        Totals since the machine started. InfiniBand counts words of four bytes.
        """
        found = {}
        for direction in ("tx", "rx"):
            nics = self.root.glob(f"sys/class/net/*/statistics/{direction}_bytes")
            found[f"nic_{direction}_bytes"] = _sum_of(
                file for file in nics if file.parts[-3] != "lo")
        for direction, name in (("tx", "port_xmit_data"), ("rx", "port_rcv_data")):
            ports = list(self.root.glob(f"sys/class/infiniband/*/ports/*/counters/{name}"))
            if ports:
                found[f"infiniband_{direction}_bytes"] = 4 * _sum_of(ports)
        return found

    def read_energy(self, seconds: float) -> dict[str, Any]:
        """Read the joules that all packages and their memory have used since `restart`."""
        try:
            for zone, count in self.microjoules.items():
                count.add(int((zone / "energy_uj").read_text()), seconds)
        except (OSError, ValueError) as error:
            return {"broken": f"energy: {zone.name}: {error}"}
        return {"energy_joules": sum(count.total for count in self.microjoules.values()) / 1e6}

    def read_use(self, seconds: float) -> dict[str, Any]:
        """Read processor seconds of all processes, those of this driver, and memory in use."""
        return {"cpu_seconds": _processor_seconds(),
                "driver_seconds": time.process_time(),
                "memory_used_bytes": psutil.virtual_memory().used, **self.read_network()}

    def read_shares(self, seconds: float) -> dict[str, Any]:
        """Read processor seconds of all processes, and of this driver and all that it started.

        Visiting all processes takes milliseconds, so never while a window is timed.
        """
        own = 0.0
        driver = psutil.Process()
        for process in (driver, *driver.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                own += times.user + times.system
        return {"cpu_seconds": _processor_seconds(), "own_seconds": own}


def _processor_seconds() -> float:
    """Return the processor seconds of all processes and interrupts since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "irq", 0)
                 + getattr(times, "softirq", 0))


def _sum_of(files: Iterable[Path]) -> int:
    """Add up files of one number each; one that vanished or cannot be read counts nothing."""
    total = 0
    for file in files:
        with suppress(OSError, ValueError):
            total += int(file.read_text())
    return total


def _energy_zones(root: Path) -> tuple[dict[Path, int], list[str]]:
    """Find the zones to add up, by where each wraps in microjoules, and why there are none."""
    zones = {}
    for folder in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        try:
            if (folder / "name").read_text().startswith(ENERGY_ZONES):
                int((folder / "energy_uj").read_text())
                zones[folder] = int((folder / "max_energy_range_uj").read_text())
        except PermissionError:
            return {}, ["energy of the processors: only root may read RAPL here "
                        "(sudo chmod a+r /sys/class/powercap/*/energy_uj)"]
        except (OSError, ValueError):
            continue
    reason = "energy of the processors: this machine shows no RAPL counters"
    return zones, [] if zones else [reason]
