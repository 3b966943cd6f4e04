"""AMD's GPUs by amdsmi, in the form of `harness.machine.gpus`. It has not run on an AMD GPU.

amdsmi comes with ROCm, or by pip (the extra `rocm`). A number that it does not know is the text
"N/A", or an error of its own; both are None here.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def opened() -> Iterator[tuple[Any, list[Any]]]:
    """Yield the library and the handles of its GPUs; (None, []) where there are none."""
    try:
        library = importlib.import_module("amdsmi")
        library.amdsmi_init()
    # Without ROCm's own library the import itself fails, each release in its own way.
    except Exception:
        yield None, []
        return
    try:
        yield library, list(ask(library, "amdsmi_get_processor_handles") or [])
    finally:
        with contextlib.suppress(Exception):
            library.amdsmi_shut_down()


def ask(library: Any, name: str, *arguments: Any) -> Any:
    """Return the answer of one of amdsmi's functions; None if it is absent or refuses."""
    try:
        return getattr(library, name)(*arguments)
    except Exception:
        return None


def number(answer: Any, key: str) -> float | None:
    """Return a number of an answer; None for "N/A" and where there is none."""
    value = answer.get(key) if isinstance(answer, dict) else answer
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def visible_indices(count: int) -> list[int]:
    """Return the GPUs that HIP shows to a program, in its order."""
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in os.environ:
            words = [word.strip() for word in os.environ[name].split(",")]
            return [int(word) for word in words if word.isdecimal() and int(word) < count]
    return list(range(count))


def describe(nothing: dict[str, None]) -> list[dict[str, Any]]:
    """Describe every AMD GPU; `nothing` has the keys of a description, for what is not known."""
    with opened() as (library, handles):
        seen = visible_indices(len(handles))
        return [{**nothing, "index": index,
                 "cuda_index": seen.index(index) if index in seen else None,
                 **_gpu(library, handle)} for index, handle in enumerate(handles)]


def _gpu(library: Any, handle: Any) -> dict[str, Any]:
    asic = ask(library, "amdsmi_get_gpu_asic_info", handle) or {}
    driver = ask(library, "amdsmi_get_gpu_driver_info", handle) or {}
    kind = getattr(library, "AmdSmiMemoryType", None)
    total, used = (ask(library, f"amdsmi_get_gpu_memory_{what}", handle, getattr(kind, "VRAM", 0))
                   for what in ("total", "usage"))
    cap = number(ask(library, "amdsmi_get_power_cap_info", handle), "power_cap")
    return {"name": asic.get("market_name"), "driver": driver.get("driver_version"),
            "memory_bytes": total, "memory_used_bytes": used,
            # In microwatts.
            "power_limit_watts": None if cap is None else cap / 1e6,
            "cuda": "none (ROCm)", "nvlinks": 0, "throttle_reasons": [], "processes": []}
