"""What MXNet's engine ran, by its own profiler.

Its bulks hide their operators unless MXNET_EXEC_BULK_EXEC_TRAIN is 0.
"""

import json
import os
import tempfile

import mxnet as mx


def operators_of(run):
    """Call `run()` and return (operator, thread, start, end), in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "profile.json")
        mx.profiler.set_config(profile_imperative=True, profile_symbolic=True, filename=file)
        mx.profiler.set_state("run")
        run()
        mx.profiler.set_state("stop")
        mx.profiler.dump()
        with open(file) as opened:
            events = json.load(opened)["traceEvents"]
    spans, running = [], {}
    # B begins a span and E ends it; a thread's events come in order.
    for event in events:
        if event["ph"] == "B":
            running.setdefault(event["tid"], []).append(event)
        elif event["ph"] == "E":
            begun = running[event["tid"]].pop()
            spans.append((begun["name"], str(begun["tid"]), begun["ts"] * 1e-6, event["ts"] * 1e-6))
    return spans
