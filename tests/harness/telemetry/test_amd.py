"""AMD's GPUs by answers in the form of amdsmi's documentation: nobody has recorded them on a GPU."""

import sys
from types import SimpleNamespace

import pytest

from harness.machine import amd, gpus
from harness.telemetry import amd as telemetry
from harness.telemetry.sampler import open_sampler

ANSWERS = {  # of an MI300X, as in docs/how-to/amdsmi-py-lib of ROCm 6
    "amdsmi_init": None, "amdsmi_shut_down": None, "amdsmi_get_processor_handles": ["first", "second"],
    "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "vendor_id": 4098},
    "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.10.5"},
    "amdsmi_get_gpu_memory_total": 205_822_885_888, "amdsmi_get_gpu_memory_usage": 297_041_920,
    "amdsmi_get_power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
    "amdsmi_get_power_info": {"current_socket_power": 141, "average_socket_power": "N/A", "power_limit": 750},
    "amdsmi_get_clock_info": {"clk": 2100, "min_clk": 500, "max_clk": 2100, "clk_deep_sleep": False},
    "amdsmi_get_gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"},
    "amdsmi_get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
}


@pytest.fixture
def amdsmi(monkeypatch):
    """Put a library in amdsmi's place; `amdsmi(**changes)` changes answers, an exception is raised."""
    def put(**changes):
        def function(answer):
            def call(*arguments):
                if isinstance(answer, Exception):
                    raise answer
                return answer
            return call

        kinds = {"AmdSmiMemoryType": SimpleNamespace(VRAM=0), "AmdSmiClkType": SimpleNamespace(GFX=0)}
        library = SimpleNamespace(**kinds, **{name: function(answer) for name, answer in {**ANSWERS, **changes}.items()})
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        return library

    return put


def test_a_gpu_tells_watts_joules_clock_memory_and_use(amdsmi):
    amdsmi()
    with telemetry.opened(1) as [gpu]:
        assert gpu.read_power(1.0) == {"power_watts": 141.0, "energy_joules": 0.0, "sm_mhz": 2100.0, "broken": ""}
        assert gpu.read_power(1.1)["energy_joules"] == pytest.approx(14.1)
        assert gpu.read_state(1.2) == {"energy_counter_joules": pytest.approx(30.6), "memory_used_bytes": 297_041_920,
                                       "busy_percent": 97.0}
        gpu.restart()
        assert gpu.read_power(2.0)["energy_joules"] == 0.0
        assert (gpu.name, len(gpu.not_measured)) == ("gpu0", 2)


def test_an_answer_of_n_a_or_an_error_is_no_number(amdsmi):
    amdsmi(amdsmi_get_power_info={"current_socket_power": "N/A", "average_socket_power": "N/A"},
           amdsmi_get_gpu_activity=RuntimeError("not supported"), amdsmi_get_energy_count=RuntimeError("not supported"))
    with telemetry.opened(1) as [gpu]:
        assert gpu.read_power(1.0) == {"broken": "energy: amdsmi tells no power"}
        assert gpu.read_state(1.0) == {"energy_counter_joules": None, "memory_used_bytes": 297_041_920, "busy_percent": None}


def test_older_cards_tell_an_average(amdsmi):
    amdsmi(amdsmi_get_power_info={"current_socket_power": "N/A", "average_socket_power": 90})
    with telemetry.opened(1) as [gpu]:
        assert gpu.read_power(1.0)["power_watts"] == 90.0


@pytest.mark.parametrize(("visible", "places"), [(None, [0, 1]), ("1", [None, 0]), ("1,0", [1, 0]), ("", [None, None])])
def test_a_description_has_the_keys_of_any_gpu_and_the_place_that_hip_gives_it(amdsmi, monkeypatch, visible, places):
    amdsmi()
    if visible is not None:
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", visible)
    found = amd.describe(dict.fromkeys(gpus.KEYS))
    assert [gpu["cuda_index"] for gpu in found] == places
    assert set(gpus.KEYS) < set(found[0])
    assert (found[0]["name"], found[0]["driver"], found[0]["power_limit_watts"]) == ("AMD Instinct MI300X", "6.10.5", 750.0)


def test_the_sampler_takes_amd_gpus_where_nvml_does_not_answer(amdsmi, monkeypatch):
    amdsmi()

    def refuse(*arguments):
        raise telemetry_nvml.NVMLError(telemetry_nvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    import pynvml as telemetry_nvml

    monkeypatch.setattr("harness.telemetry.sampler.opened", refuse)
    with open_sampler(2, None) as sampler:
        assert [source.name for source in sampler.sources] == ["host", "gpu0", "gpu1"]
        assert sampler.describe()["not_measured"] != []


def test_without_the_library_there_are_no_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert amd.describe({}) == []
    with telemetry.opened(2) as found:
        assert found == []
