"""How NVML is asked: through old bindings and drivers, and for the GPUs that CUDA sees."""

import pytest

from harness.machine import nvml
from tests.harness.fake_nvml import NOT_SUPPORTED, ULONGLONG, FakeNvml, Gpu, install

UUIDS = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]


@pytest.mark.parametrize(("visible", "indices"), [
    (None, [0, 1, 2]), ("", []), ("1", [1]), ("2,0", [2, 0]), (" 1 , 2", [1, 2]), ("0,7,1", [0]), ("-1", []), ("1,-1,2", [1]),
    ("GPU-cccc-3", [2]), ("GPU-c", [2]), ("GPU-aabb,0", [1, 0]), ("GPU-aa", []), ("GPU-", []), ("0,MIG-cccc,1", [0]),
])
def test_cuda_sees_what_its_variable_leaves(visible, indices):
    assert nvml.visible_indices(visible, UUIDS) == indices


def test_what_cannot_be_told_is_none(monkeypatch):
    install(monkeypatch, FakeNvml(), nvml)
    gpu = Gpu(nvmlDeviceGetPowerUsage=NOT_SUPPORTED, nvmlDeviceGetName=b"Tesla K80")
    assert nvml.ask("nvmlDeviceGetPowerUsage", gpu) is None
    assert nvml.ask("nvmlDeviceOfALaterRelease", gpu) is None
    assert nvml.ask("nvmlDeviceGetName", gpu) == "Tesla K80"


@pytest.mark.parametrize(("answers", "reasons"), [
    ({"nvmlDeviceGetCurrentClocksEventReasons": 4}, 4),
    ({"nvmlDeviceGetCurrentClocksEventReasons": NOT_SUPPORTED, "nvmlDeviceGetCurrentClocksThrottleReasons": 8}, 8),
    ({"nvmlDeviceGetCurrentClocksEventReasons": NOT_SUPPORTED, "nvmlDeviceGetCurrentClocksThrottleReasons": NOT_SUPPORTED}, None),
])
def test_event_reasons_have_an_older_name(monkeypatch, answers, reasons):
    install(monkeypatch, FakeNvml(), nvml)
    assert nvml.event_reasons(Gpu(**answers)) == reasons


def test_fields_are_read_in_their_own_types_and_absent_ones_left_out(monkeypatch):
    install(monkeypatch, FakeNvml(), nvml)
    gpu = Gpu(fields={198: (1, 2**32 - 1), 139: (ULONGLONG, 2**40), 186: (1, NOT_SUPPORTED)})
    assert nvml.read_fields(gpu, {"rx": 198, "nvlink": 139, "power": 186}) == {"rx": (2**32 - 1, True), "nvlink": (2**40, False)}
    assert nvml.read_fields(gpu, {}) == {}
    assert [nvml.supports(gpu, field) for field in (198, 186, 999)] == [True, False, False]
    gpu.lost = True
    assert not nvml.supports(gpu, 198)
