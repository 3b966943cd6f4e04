"""Asking NVML, NVIDIA's management library, through old and new drivers and bindings alike; nothing is ever set.

What cannot be told is None. `harness.telemetry.gpu` reads counters with it while training, `harness.machine.gpus` describes the machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pynvml

VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
UNSIGNED_INT = 1

Field = int | tuple[int, int]  # number, or number and scope


@contextmanager
def handles(in_use: Callable[[], bool] = lambda: False) -> Iterator[list[Any]]:
    """Open NVML and give the handles of all GPUs, in order of their bus. Raises NVMLError where there is no driver.

    It stays open where at the end somebody still waits for its answer (`in_use`): shut down under a call, NVML crashes.
    """
    pynvml.nvmlInit()
    try:
        yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        if not in_use():
            pynvml.nvmlShutdown()


def ask(question: str, *arguments: Any) -> Any:
    """Ask by the name of NVML's function; None where this GPU, driver, user or release of nvidia-ml-py cannot tell."""
    try:
        answer = getattr(pynvml, question)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None
    return answer.decode() if isinstance(answer, bytes) else answer  # older bindings


def event_reasons(handle: Any) -> int | None:
    """Read why the clocks are what they are, as bits; older drivers and bindings call events throttling."""
    reasons: int | None = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    return ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if reasons is None else reasons


def read_fields(handle: Any, fields: Mapping[str, Field]) -> dict[str, tuple[float, bool]]:
    """Read fields in one call: those that answered, each as its value and whether it is a counter of 32 bits.

    Raises NVMLError where the GPU does not answer at all.
    """
    if not fields:
        return {}
    answers = pynvml.nvmlDeviceGetFieldValues(handle, list(fields.values()))
    return {name: (getattr(answer.value, VALUES[answer.valueType]), answer.valueType == UNSIGNED_INT)
            for name, answer in zip(fields, answers, strict=True) if answer.nvmlReturn == pynvml.NVML_SUCCESS}


def supports(handle: Any, field: Field) -> bool:
    """Say whether this GPU and driver answer a field, asked alone so that no other field can spoil the call."""
    try:
        return bool(read_fields(handle, {"": field}))
    except (pynvml.NVMLError, AttributeError):
        return False


def visible_indices(visible: str | None, uuids: Sequence[str]) -> list[int]:
    """Turn CUDA_VISIBLE_DEVICES into NVML's indices: numbers, UUIDs or their beginnings; CUDA stops at the first it cannot use.

    Holds for CUDA_DEVICE_ORDER=PCI_BUS_ID, which is NVML's order and what the driver gives its workers. A MIG slice has no
    counters of its own, so its name ends the list too.
    """
    if visible is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in (word.strip() for word in visible.split(",")):
        named = [index for index, uuid in enumerate(uuids) if word.startswith("GPU-") and uuid.startswith(word)]
        index = int(word) if word.isdigit() else named[0] if len(named) == 1 else -1
        if not 0 <= index < len(uuids):
            break
        found.append(index)
    return found
