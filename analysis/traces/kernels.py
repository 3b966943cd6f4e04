"""From a GPU kernel's name to its class, and to a product's arithmetic and transposition.

A name is all that a library says of a kernel. The rules about names are in rules.yaml. Names that
no rule knows are `unclassified`, and reports say how much time that is. The tests use lists of
kernels recorded on a GPU.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

PRODUCT, CONVOLUTION, ATTENTION = "matrix product", "convolution", "attention"
ELEMENTWISE, REDUCTION, LAYOUT, OPTIMISER = "element-wise", "reduction", "layout", "optimiser"
COLLECTIVE, COPY, MEMSET, UNCLASSIFIED = "collective", "copy", "memset", "unclassified"
CLASSES = (PRODUCT, CONVOLUTION, ATTENTION, REDUCTION, ELEMENTWISE, LAYOUT, OPTIMISER, COLLECTIVE,
           COPY, MEMSET, UNCLASSIFIED)
# Rows of kernels.csv that are no activity.
WALL, BUSY, IDLE, NO_TRACE = "wall", "busy", "idle", "no trace"
# One of these is written last, so a trace without them was cut off.
LAST_ROWS = (IDLE, NO_TRACE)
# A class counts while none of a lower number runs; computing has 0.
HIDDEN = {COLLECTIVE: 1, COPY: 2, MEMSET: 2}

Rules = list[tuple[re.Pattern[str], str]]

RULES = yaml.safe_load((Path(__file__).parent / "rules.yaml").read_text(encoding="utf-8"))


def rules_of(section: str) -> Rules:
    """Read a section of rules.yaml: one pattern a rule, in order."""
    return [(re.compile("|".join(patterns)), kind)
            for rule in RULES[section] for kind, patterns in rule.items()]


def first_match(rules: Rules, name: str, otherwise: str) -> str:
    """Return the class of the first rule that is found in a name."""
    return next((kind for pattern, kind in rules if pattern.search(name)), otherwise)


KERNELS, ARITHMETIC = rules_of("kernels"), rules_of("arithmetic")
# The letters of nvjet's operands, sums and result. It uses tensor cores only.
NVJET = re.compile(r"nvjet_(?:sm\d+_)?(?:qq)?([a-z])[a-z]{2}_")
NVJET_OPERANDS = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "o": "fp8", "d": "fp64"}
# nvjet's, then everybody's.
TRANSPOSITIONS = (re.compile(r"_([NT][NT])[NT](?:_|$)"), re.compile(r"_([nt][nt])(?:_|>|$)"))
LONGEST_NAME = 200


@dataclass(frozen=True)
class Kind:
    """What a kernel computes. `arithmetic` and `transposition` are "" where its name has none."""

    name: str
    arithmetic: str = ""
    transposition: str = ""


@cache
def classify(kernel: str) -> Kind:
    """Classify a kernel by its whole name.

    Arithmetic is fp32, tf32, bf16, fp16, fp8 or fp64. Transposition is nn, nt, tn or tt of
    column-major operands, as in BLAS: a row-major `x @ w.T` shows as tn.
    """
    name = bare(kernel)
    kind = first_match(KERNELS, name, UNCLASSIFIED)
    if kind not in (PRODUCT, CONVOLUTION):
        return Kind(kind)
    return Kind(kind, _arithmetic(name), _transposition(name) if kind == PRODUCT else "")


def bare(kernel: str) -> str:
    """Strip the arguments and return type of a C++ name: the kernel only passes these types on."""
    name = kernel.removeprefix("void ")
    opening = _last_bracket(name)
    return name[:opening] if opening > 0 else name


def shorten(kernel: str) -> str:
    """Shorten a name for a table: bare, and only its two ends if it is long."""
    name = bare(kernel)
    end = LONGEST_NAME // 2 - 2
    return name if len(name) <= LONGEST_NAME else f"{name[:end]} .. {name[-end:]}"


def _arithmetic(name: str) -> str:
    if found := NVJET.search(name):
        return NVJET_OPERANDS.get(found[1], "")
    return first_match(ARITHMETIC, name, "")


def _transposition(name: str) -> str:
    found = filter(None, (pattern.search(name) for pattern in TRANSPOSITIONS))
    return next((match[1].lower() for match in found), "")


def _last_bracket(name: str) -> int:
    """Find the bracket that the last character of `name` closes; -1 where there is none."""
    depth = 0
    for place in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return place
    return -1
