"""An NVML of made-up GPUs with scripted answers, for tests of what asks it; `install` puts it in the place of pynvml."""

from types import SimpleNamespace

import pynvml

NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
UINT, ULONGLONG = 1, 3
DEVICE = {  # what a GPU answers, by NVML's function; an error is raised
    "nvmlDeviceGetMaxPcieLinkGeneration": 5, "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5, "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetCurrentClocksEventReasons": 0, "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000, "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_000_000_000, used=2**30),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=90, memory=40), "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetPowerUsage": 300_000, "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=0),
    "nvmlDeviceGetName": "NVIDIA H200", "nvmlDeviceGetTemperature": 30, "nvmlDeviceGetPowerManagementLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000, "nvmlDeviceGetEccMode": [1, 1], "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetMigMode": [0, 0], "nvmlDeviceGetNvLinkState": NOT_SUPPORTED,
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:0A:00.0"),
}
FIELDS = {  # number: value type, value; those of NVLink are not supported, as on a machine with one GPU
    198: (UINT, 0), 197: (UINT, 0), 186: (UINT, 500_000),
}


class Gpu:
    """One GPU: `answers` by function, `fields` by number, both to be changed by a test as time goes on."""

    def __init__(self, uuid="GPU-aaaa", fields=FIELDS, **answers):
        self.answers = {**DEVICE, "nvmlDeviceGetUUID": uuid, **answers}
        self.fields = dict(fields)
        self.lost = False


class FakeNvml:
    """Stands for the module pynvml; what it does not script is NVML's own constant or type."""

    def __init__(self, *gpus, **system):
        self.gpus = gpus
        self.system = {"nvmlInit": None, "nvmlShutdown": None, "nvmlSystemGetDriverVersion": "580.1",
                       "nvmlSystemGetCudaDriverVersion_v2": 13000,
                       "nvmlDeviceGetTopologyCommonAncestor": pynvml.NVML_TOPOLOGY_SYSTEM,
                       "nvmlDeviceGetP2PStatus": pynvml.NVML_P2P_STATUS_NOT_SUPPORTED, "nvmlGpmSampleFree": None, **system}
        self.calls = []

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            return getattr(pynvml, name)
        if name in self.system:
            return lambda *arguments: self.answer(name, self.system[name], arguments)
        if name in DEVICE or name == "nvmlDeviceGetUUID":
            return lambda gpu, *arguments: self.answer(name, LOST if gpu.lost else gpu.answers[name], arguments)
        raise AttributeError(name)

    def answer(self, name, value, arguments):
        assert hasattr(pynvml, name)
        self.calls.append(name)
        if isinstance(value, Exception):
            raise value
        return value(*arguments) if callable(value) else value

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetClockInfo(self, gpu, clock):
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[clock]

    nvmlDeviceGetMaxClockInfo = nvmlDeviceGetClockInfo

    def nvmlDeviceGetPcieThroughput(self, gpu, counter):
        value = gpu.answers.get("nvmlDeviceGetPcieThroughput", NOT_SUPPORTED)
        return self.answer("nvmlDeviceGetPcieThroughput", LOST if gpu.lost else value, (counter,))

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        if gpu.lost:
            raise LOST
        answers = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for answer, field in zip(answers, fields, strict=True):
            kind, value = gpu.fields.get(field, (UINT, NOT_SUPPORTED))
            if isinstance(value, pynvml.NVMLError):
                answer.nvmlReturn = value.value
            else:
                answer.valueType = kind
                setattr(answer.value, {UINT: "uiVal", ULONGLONG: "ullVal"}[kind], value)
        return answers


def install(monkeypatch, fake, *modules):
    """Put `fake` in the place of pynvml in each of `modules`."""
    for module in modules:
        monkeypatch.setattr(module, "pynvml", fake)
    return fake
