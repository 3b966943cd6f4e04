"""What XLA's fusions compute, by the compiled program's text: for JAX and for TensorFlow.

A GPU's kernel has the name of its fusion, and XLA calls many only fusion_7.
"""

import re

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


def meanings_of(program, kernels):
    """Name each nameless fusion by its heavy operation, else its first operation, else "copy".

    `program()` returns the text. XLA compiles anew for it, so it is called only where a kernel has
    no name.
    """
    nameless = [kernel for kernel in kernels if NAMELESS.match(kernel)]
    text = program() if nameless else ""
    bodies = dict(COMPUTATION.findall(text))
    called = {name.replace(".", "_"): body for name, body in CALL.findall(text)}
    found = {}
    for kernel in nameless:
        if kernel in called:
            codes = OPCODE.findall(bodies.get(called[kernel], ""))
            heavy = [code for code in HEAVY if code in codes]
            loud = [code for code in codes if code not in QUIET]
            found[kernel] = (heavy + loud + ["copy"])[0]
    return found
