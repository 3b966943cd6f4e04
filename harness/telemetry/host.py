"""The host as a source of telemetry: processor time, memory, and energy where RAPL is readable."""

import time
from collections.abc import Callable
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
        self.zones, self.not_measured = _energy_zones(root)
        self.readings: dict[str, Callable[[float], dict[str, Any]]] = {"slow": self.read_use}
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
        times = psutil.cpu_times()
        interrupts = getattr(times, "irq", 0) + getattr(times, "softirq", 0)
        return {"cpu_seconds": times.user + times.nice + times.system + interrupts,
                "driver_seconds": time.process_time(),
                "memory_used_bytes": psutil.virtual_memory().used}


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
