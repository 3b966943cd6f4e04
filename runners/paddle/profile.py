"""What Paddle's threads ran, by its own profiler. Operators are its kernels only."""

import json
import os
import tempfile

from paddle import profiler

KERNEL = " kernel launch"


def operators_of(run):
    """Call `run()` and return (operator, thread, start, end), in seconds."""
    recorded = profiler.Profiler(targets=[profiler.ProfilerTarget.CPU],
                                 on_trace_ready=lambda own: None)
    recorded.start()
    run()
    recorded.stop()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "profile.json")
        recorded.export(file, "json")
        with open(file) as opened:
            events = json.load(opened)["traceEvents"]
    spans = []
    for event in events:
        # Without its duration.
        name = event.get("name", "").partition("[")[0]
        if event.get("ph") == "X" and name.endswith(KERNEL):
            start, stop = event["ts"], event["ts"] + event["dur"]
            spans.append((name[:-len(KERNEL)], event["tid"], start * 1e-6, stop * 1e-6))
    return spans
