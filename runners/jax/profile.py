"""What XLA's threads ran, by JAX's own profiler.

Operators are XLA's instructions, each after the primitive of JAX that it came from, as the compiled
program's text says: dot_general ynn_fusion. A fusion without one is named after the heaviest
operation in it. The same text says what a GPU's kernel computes that XLA called only fusion_7.
"""

import pathlib
import re
import tempfile

import jax

INSTRUCTION = re.compile(r'^ *(?:ROOT )?%?([\w.-]+) = .*op_name="(?:[^"]*/)?([^"/]*)"',
                         re.MULTILINE)
CALL = re.compile(r"^ *(?:ROOT )?%?([\w.-]+) = .* calls=%?([\w.-]+)", re.MULTILINE)
COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{\n((?:  .*\n)*)", re.MULTILINE)
# The first of these that a fusion holds names it.
HEAVY = ("convolution", "dot", "reduce-window", "scatter", "reduce", "transpose")
# Finds the operation of each instruction in a computation's text.
OPCODE = re.compile(r"= .*? ([a-z][\w-]*)\(")
QUIET = ("parameter", "constant", "broadcast", "bitcast", "reshape", "iota", "tuple",
         "get-tuple-element", "convert", "copy")
# A kernel whose fusion has no kind to be named after.
NAMELESS = re.compile(r"fusion(_\d+)?$")
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


def meanings_of(program, kernels):
    """Name each nameless fusion by its heavy operation, else its first operation, else "copy"."""
    bodies = dict(COMPUTATION.findall(program))
    called = {name.replace(".", "_"): body for name, body in CALL.findall(program)}
    found = {}
    for kernel in kernels:
        if NAMELESS.match(kernel) and kernel in called:
            codes = OPCODE.findall(bodies.get(called[kernel], ""))
            heavy = [code for code in HEAVY if code in codes]
            loud = [code for code in codes if code not in QUIET]
            found[kernel] = (heavy + loud + ["copy"])[0]
    return found


def operator_name(event, primitives):
    """Put its primitive before an instruction without its number; other events keep their name."""
    return f"{primitives[event]} {event.split('.')[0]}" if event in primitives else event
