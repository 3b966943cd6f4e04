"""What the GPU did in a few steps: CUPTI's activity records, read through NVIDIA's `cupti-python`.

One tracer for every framework with a modern Python. Only the session's `trace` command imports it.
CUPTI has one subscriber a process, so a framework's own profiler must be off. Times of a trace are
never those of a trial, because writing records costs time.
"""

import collections
import ctypes

from runners.protocol import Unsupported, timed_run

# The size in NVIDIA's samples; CUPTI asks for as many buffers as it fills.
BUFFER_BYTES = 8 * 2**20
# MEMCPY2 is a copy between two GPUs.
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
MEMORIES = {"H": "host", "D": "device", "A": "array"}


def trace(runner, device, steps, timed=timed_run):
    """Run `steps` steps of a runner on `device` and return what the device did meanwhile.

    If a process drives several devices, only the first one's activities are returned.
    `kernels`: name, count, seconds; the runner may explain a name, as in "fusion_7: reduce".
    `copies`: kind, count, bytes, seconds; a memset counts as a copy of that kind.
    `timeline`: [number, start, end] of every activity in nanoseconds since the first, numbered as
    kernels and then copies are. `busy_seconds` is the union of these activities, which may overlap.
    `span_seconds` lasts from the first start to the last end, so the device idled for the
    difference. `wall_seconds` is the protocol's clock.
    """
    if device != "cuda":
        raise Unsupported("a trace reads the activity records of a CUDA device; this task is on "
                          f"'{device}'")
    cupti = load_cupti()
    recorded = []
    kinds = start_recording(cupti, recorded)
    try:
        start, stop = timed(runner, steps)
        # 1: also buffers that are not full yet.
        cupti.activity_flush_all(1)
    finally:
        for kind in kinds:
            cupti.activity_disable(kind)
    dropped = ctypes.c_size_t()
    cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
    if dropped.value:
        raise RuntimeError(f"CUPTI dropped {dropped.value} activity records: the trace is not "
                           "whole")
    first = min((device for device, _ in recorded), default=None)
    traced = summarise([activity for device, activity in recorded if device == first])
    meanings = runner.meanings([kernel["name"] for kernel in traced["kernels"]])
    for kernel in traced["kernels"]:
        if kernel["name"] in meanings:
            kernel["name"] += ": " + meanings[kernel["name"]]
    return dict(traced, steps=steps, wall_seconds=stop - start)


def load_cupti():
    """Import CUPTI's Python module, or raise `Unsupported` with the name of its package."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise Unsupported("no trace without the package cupti-python, of the framework's own CUDA: "
                          f"{error}") from None
    return cupti


def start_recording(cupti, recorded):
    """Let CUPTI append (device, (name or kind, bytes, start, end)) of each activity to `recorded`.

    A kernel has None for bytes.
    """
    # The records are gone when this returns.
    def completed(records):
        recorded.extend((record.device_id, describe(cupti, record)) for record in records)

    kinds = [getattr(cupti.ActivityKind, name) for name in KINDS]
    try:
        cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
        for kind in kinds:
            cupti.activity_enable(kind)
    except (RuntimeError, cupti.cuptiError) as error:
        raise Unsupported("CUPTI does not trace this process: "
                          f"{type(error).__name__}: {error}") from None
    return kinds


def describe(cupti, record):
    """Turn one of CUPTI's records into a tuple; times are nanoseconds, 0 if unknown."""
    kinds = cupti.ActivityKind
    if record.kind not in (kinds.MEMCPY, kinds.MEMCPY2, kinds.MEMSET):
        return record.name, None, record.start, record.end
    name = {kinds.MEMCPY2: "device_to_other_device", kinds.MEMSET: "memset"}.get(record.kind)
    if record.kind == kinds.MEMCPY:
        name = copy_kind(cupti.ActivityMemcpyKind(record.copy_kind).name)
    return name, record.bytes, record.start, record.end


def copy_kind(name):
    """Spell out HTOD as host_to_device; PTOP lies between two GPUs."""
    if name == "PTOP":
        return "device_to_other_device"
    source, between, target = name.partition("TO")
    return f"{MEMORIES[source]}_to_{MEMORIES[target]}" if between else name.lower()


def summarise(activities):
    """Add up activities by name, and measure the union of their intervals."""
    kernels, copies = collections.OrderedDict(), collections.OrderedDict()
    for name, size, start, end in activities:
        entry = (kernels if size is None else copies).setdefault(name, [0, 0, 0])
        for place, amount in enumerate((1, size or 0, end - start)):
            entry[place] += amount
    intervals = sorted((start, end) for _, _, start, end in activities if start)
    first = intervals[0][0] if intervals else 0
    keys = [(name, False) for name in kernels] + [(name, True) for name in copies]
    numbers = {key: number for number, key in enumerate(keys)}
    source_name = demangler()
    return {
        "kernels": [{"name": source_name(name), "count": count, "seconds": time * 1e-9}
                    for name, (count, _, time) in kernels.items()],
        "copies": [{"kind": kind, "count": count, "bytes": size, "seconds": time * 1e-9}
                   for kind, (count, size, time) in copies.items()],
        "timeline": [[numbers[name, size is not None], start - first, end - first]
                     for name, size, start, end in activities if start],
        "busy_seconds": union(intervals) * 1e-9,
        "span_seconds": (max((end for _, end in intervals), default=first) - first) * 1e-9,
    }


def union(intervals):
    """Return the length that sorted intervals (start, end) cover together."""
    covered, reached = 0, 0
    for start, end in intervals:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def demangler():
    """Return a function from a C++ symbol to its name in the source, by libstdc++."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return lambda symbol: symbol
    demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p] + 3 * [ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p]

    def source_name(symbol):
        address = demangle(symbol.encode(), None, None, None) if symbol.startswith("_Z") else None
        if not address:
            return symbol
        name = ctypes.string_at(address).decode()
        free(address)
        return name

    return source_name
