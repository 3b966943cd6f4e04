"""From the name of a framework's CPU operator to the class of what it computes.

Names are those of the frameworks' own profilers (runners/*/profile.py), the rules are in
rules.yaml. A name that only says who called whom is a `WRAPPER`: its own time is the framework's.
"""

import re
from functools import cache

from analysis.traces.kernels import ELEMENTWISE, RULES, UNCLASSIFIED, first_match, rules_of

WRAPPER = ""
CALLER = "caller"
WHOLE, REST = rules_of("whole operators"), rules_of("operators")
MARKS = re.compile("|".join(RULES["marks"]))
VIEWS, QUERIES, ELEMENTS = (frozenset(RULES[key].split())
                            for key in ("views", "queries", "element-wise"))


@cache
def classify(operator: str) -> str:
    """Return the class of an operator, `WRAPPER` for one that computes nothing itself."""
    if found := first_match(WHOLE, operator, ""):
        return WRAPPER if found == CALLER else found
    name = plain(operator)
    if name in QUERIES or (operator.startswith("aten::") and name in VIEWS):
        return WRAPPER
    return ELEMENTWISE if name in ELEMENTS else first_match(REST, name, UNCLASSIFIED)


def plain(operator: str) -> str:
    """Strip frameworks' and gradients' marks: aten::convolution_backward becomes convolution."""
    # A sum, not the gradient of an addition.
    if operator == "BiasAddGrad":
        return operator.lower()
    name, before = operator.lower(), ""
    while name != before:
        name, before = MARKS.sub("", name), name
    return name
