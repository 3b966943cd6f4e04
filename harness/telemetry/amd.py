"""One AMD GPU as a source of telemetry: watts, joules, megahertz, memory. Not run on an AMD GPU.

amdsmi's packet counters of PCIe take a second a call, so PCIe bytes are not measured.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.machine import amd
from harness.machine.amd import ask, number
from harness.telemetry.cumulative import Integral, joined

# The unit of the energy accumulator, if an answer names no resolution of its own.
MICROJOULES = 15.259


@contextmanager
def opened(count: int) -> Iterator[list["AmdGpu"]]:
    """Open the first `count` GPUs that HIP shows, as gpu0, gpu1 ..."""
    with amd.opened() as (library, handles):
        seen = amd.visible_indices(len(handles))[:count]
        yield [AmdGpu(library, handles[index], f"gpu{place}") for place, index in enumerate(seen)]


class AmdGpu:
    """One GPU, asked through its amdsmi handle."""

    def __init__(self, library: Any, handle: Any, name: str):
        self.library, self.handle, self.name = library, handle, name
        self.readings: dict[str, Callable[[float], dict[str, Any]]] = {
            "fast": self.read_power, "slow": self.read_use}
        self.edges: dict[str, Callable[[float], dict[str, Any]]] = {"slow": self.read_state}
        self.not_measured = [f"PCIe bytes of {name}: amdsmi counts them for a second a call",
                             f"NVLink bytes of {name}: an AMD GPU has none"]
        self.restart()

    def describe(self) -> dict[str, Any]:
        """Describe for campaign.json where each number comes from."""
        return {"device": self.name, "pcie": None, "nvlink": None,
                "power": "amdsmi's socket power, integrated", "gpm": False}

    def restart(self) -> None:
        """Begin all totals anew."""
        self.joules = Integral()

    def read_power(self, seconds: float) -> dict[str, Any]:
        """Read power and clock; add up joules."""
        power = ask(self.library, "amdsmi_get_power_info", self.handle)
        watts = number(power, "current_socket_power")
        watts = number(power, "average_socket_power") if watts is None else watts
        if watts is None:
            return {"broken": "energy: amdsmi tells no power"}
        kind = getattr(getattr(self.library, "AmdSmiClkType", None), "GFX", 0)
        clock = number(ask(self.library, "amdsmi_get_clock_info", self.handle, kind), "clk")
        broken = joined({"energy": self.joules.add(watts, seconds)})
        return {"power_watts": watts, "energy_joules": self.joules.total, "sm_mhz": clock,
                "broken": broken}

    def read_use(self, seconds: float) -> dict[str, Any]:
        """Read memory and how busy the GPU is."""
        kind = getattr(getattr(self.library, "AmdSmiMemoryType", None), "VRAM", 0)
        activity = ask(self.library, "amdsmi_get_gpu_activity", self.handle)
        return {"memory_used_bytes": ask(self.library, "amdsmi_get_gpu_memory_usage", self.handle,
                                         kind),
                "busy_percent": number(activity, "gfx_activity")}

    def read_state(self, seconds: float) -> dict[str, Any]:
        """Read the energy accumulator and everything that `read_use` reads."""
        answer = ask(self.library, "amdsmi_get_energy_count", self.handle)
        count = number(answer, "energy_accumulator")
        count = number(answer, "power") if count is None else count
        joules = None
        if count is not None:
            resolution = number(answer, "counter_resolution") or MICROJOULES
            joules = count * resolution / 1e6
        return {"energy_counter_joules": joules, **self.read_use(seconds)}
