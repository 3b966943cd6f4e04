"""What TensorFlow's executor ran, by its own profiler.

Operators have their type's name, the optimiser's in its scope: sgd/Mul.
"""

import pathlib
import tempfile

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

LEVELS = tf.profiler.experimental.ProfilerOptions(
    host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)


def operators_of(run):
    """Call `run()` and return (operator, thread, start, end), in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, options=LEVELS):
            run()
        file, = pathlib.Path(folder).rglob("*.xplane.pb")
        planes = XSpace.FromString(file.read_bytes()).planes
    spans = []
    for number, plane in enumerate(planes):
        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                name = operator_name(plane.event_metadata[event.metadata_id].name)
                stop = start + event.duration_ps * 1e-12
                spans.append((name, f"{number}/{line.id}", start, stop))
    return spans


def operator_name(event):
    """Take the type from sgd/Mul_4:Mul, with the optimiser's scope; others keep their name."""
    node, _, kind = event.partition(":")
    if not kind.isidentifier():
        return event
    return f"sgd/{kind}" if node.startswith("sgd/") else kind
