"""What XLA's threads ran, by JAX's own profiler.

Operators are XLA's instructions, each after the primitive of JAX that it came from, as the compiled
program's text says: dot_general ynn_fusion. A fusion without one is named after the heaviest
operation in it.
"""

import pathlib
import re
import tempfile

import jax

from runners.jax.fusions import CALL, COMPUTATION, HEAVY

INSTRUCTION = re.compile(r'^ *(?:ROOT )?%?([\w.-]+) = .*op_name="(?:[^"]*/)?([^"/]*)"',
                         re.MULTILINE)
# Opens the name of an event that only says that another is over.
END = "end: "


def operators_of(run, program):
    """Call `run()`, which runs `program` (a text); return (operator, thread, start, end)."""
    primitives = primitives_of(program)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        file, = pathlib.Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        return [(operator_name(event.name, primitives), f"{plane.name}/{number}",
                 event.start_ns * 1e-9, event.end_ns * 1e-9)
                for plane in planes for number, line in enumerate(plane.lines)
                for event in line.events if not event.name.startswith(END)]


def primitives_of(program):
    """Return each instruction's primitive of JAX, or else the heavy operation in its fusion."""
    bodies = dict(COMPUTATION.findall(program))
    heavy = {name: next((op for op in HEAVY if f" {op}(" in bodies.get(called, "")), "")
             for name, called in CALL.findall(program)}
    return {**{name: op for name, op in heavy.items() if op}, **dict(INSTRUCTION.findall(program))}


def operator_name(event, primitives):
    """Put its primitive before an instruction without its number; other events keep their name."""
    return f"{primitives[event]} {event.split('.')[0]}" if event in primitives else event
