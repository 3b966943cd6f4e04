"""Reads NVML, NVIDIA's management library, with old and new drivers and bindings; sets nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pynvml

VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
UNSIGNED_INT = 1

Field = int | tuple[int, int]  # number, or number and scope


@contextmanager
def handles(in_use: Callable[[], bool] = lambda: False) -> Iterator[list[Any]]:
    """Open NVML: the handles of all GPUs in bus order. Raises NVMLError where there is no driver.

    NVML stays open while a call is pending (`in_use`), because shutting it down would crash.
    """
    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    finally:
        if not in_use():
            pynvml.nvmlShutdown()


def ask(question: str, *arguments: Any) -> Any:
    """Call an NVML function by name; None where this GPU, driver or binding does not support it."""
    try:
        answer = getattr(pynvml, question)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None
    # Older bindings answer with bytes.
    return answer.decode() if isinstance(answer, bytes) else answer


def event_reasons(handle: Any) -> int | None:
    """Read why the clocks are what they are, as bits. Older drivers call events throttling."""
    for question in ("nvmlDeviceGetCurrentClocksEventReasons",
                     "nvmlDeviceGetCurrentClocksThrottleReasons"):
        reasons: int | None = ask(question, handle)
        if reasons is not None:
            return reasons
    return None


def read_fields(handle: Any, fields: Mapping[str, Field]) -> dict[str, tuple[float, bool]]:
    """Read fields in one call: (value, whether it is a 32-bit counter) of those that answered.

    Raises NVMLError where the GPU does not answer at all.
    """
    if not fields:
        return {}
    answers = pynvml.nvmlDeviceGetFieldValues(handle, list(fields.values()))
    return {name: (getattr(found.value, VALUES[found.valueType]), found.valueType == UNSIGNED_INT)
            for name, found in zip(fields, answers, strict=True)
            if found.nvmlReturn == pynvml.NVML_SUCCESS}


def supports(handle: Any, field: Field) -> bool:
    """Return whether a field answers, asked alone so that no other field can spoil the call."""
    try:
        return bool(read_fields(handle, {"": field}))
    except (pynvml.NVMLError, AttributeError):
        return False


def visible_indices(visible: str | None, uuids: Sequence[str]) -> list[int]:
    """Turn CUDA_VISIBLE_DEVICES (numbers, UUIDs or their beginnings) into NVML's indices.

    Workers have CUDA_DEVICE_ORDER=PCI_BUS_ID, which is NVML's order. Like CUDA, stop at the first
    word that names no GPU. A MIG slice has no counters, so it ends the list too.
    """
    if visible is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in (word.strip() for word in visible.split(",")):
        named = [index for index, uuid in enumerate(uuids)
                 if word.startswith("GPU-") and uuid.startswith(word)]
        index = int(word) if word.isdigit() else named[0] if len(named) == 1 else -1
        if not 0 <= index < len(uuids):
            break
        found.append(index)
    return found
