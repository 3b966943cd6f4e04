"""From the name of a framework's CPU operator to the class of what it computes, in the words of `analysis.traces.kernels`.

Names are those of PyTorch's, TensorFlow's, JAX's, MXNet's and Paddle's own profilers (runners/*_profile.py). A name that only says
who called whom, such as a gradient's node, is a `WRAPPER`: its own time is the framework's and no operator's. Names that no rule
knows are `unclassified`, and the answer says how much time that is.
"""

import re
from functools import cache

from analysis.traces.kernels import (
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    LAYOUT,
    OPTIMISER,
    PRODUCT,
    REDUCTION,
    UNCLASSIFIED,
)

WRAPPER = ""

# Of a whole name, as the profiler writes it.
CALLERS = re.compile(
    r"Backward\d*$|^autograd::|^torch::|^detach$|^Optimizer\.zero_grad|Compiled|Dynamo|^AOT|^Pregraph|^(?!aten::).*\w::"  # PyTorch
    r"|^Executor|^Eager|^TFE_|^FunctionRun|^train_step$|^tf\.|^Memory(De)?[Aa]lloc|^Validate"  # TensorFlow
    r"|^(Wait |Pjit|Parse|Handle |Allocate|shard_args|PythonRef|(while )?while|call\b|closed_call$|conditional)"  # JAX
    r"|^DeleteVariable")  # MXNet
UPDATES = re.compile(r"^sgd/|^Optimizer\.step|_foreach_|fused_sgd|sgd_mom_update|momentum")
XLA_LAYOUT = re.compile(r"(^| )(wrapped_)?((transpose|copy|bitcast|concatenate|pad|convert|(dynamic-)?(update-)?slice)[_.]?)+"
                        r"(fusion)?(\.?\d+)?$")

# Words that decide alone: PyTorch's views and what only asks or allocates, what TensorFlow asks, and element-wise work.
VIEWS = re.compile(
    r"empty|empty_like|empty_strided|as_strided|resize|view|unsafe_view|reshape|reshape_alias|flatten|t|"
    r"transpose|permute|expand|squeeze|unsqueeze|select|slice|narrow|split|unbind|alias|item|detach|to|"
    r"to_copy|contiguous|clone|zeros|zeros_like|ones_like|stack|resolve_conj|resolve_neg|cudnn_is_acceptable")
QUESTIONS = re.compile(
    r"readvariableop|variableshape|noop|identity|const|less|logicaland|tensorlistlength|tensorlistelementshape|"
    r"tensorlistreserve|shape|stridedslice|merge|switch")
ELEMENTS = re.compile(
    r"relu|sigmoid|tanh|add|addv2|addn|sub|mul|div|divnonan|realdiv|neg|exp|log|square|sqrt|rsqrt|maximum|"
    r"minimum|biasadd|fill|zeroslike|selectv2|gatherv2|unsortedsegmentsum|assignvariableop|assignaddvariableop|"
    r"cast|greaterequal|equal|notequal|not_equal|where|zero|one_hot|masked_fill|full|clamp_min|clamp|threshold|"
    r"bernoulli|dropout|native_dropout|embedding|embedding_dense|index_select|index|index_put|leakyrelu|activation|"
    r"setvalueop|scale|subtract|multiply|divide")

# Of what is left of a name once its framework's and its gradient's marks are taken off.
RULES = tuple((re.compile(pattern), kind) for pattern, kind in (
    (r"^deviceput|copycpu2cpu|^h2d|^d2h", COPY),
    (r"conv(?!ert)", CONVOLUTION),
    (r"^\w*mm$|^mv$|matmul|linear|fullyconnected|rnn(?!_param)|lstm|\bdot\b|dot_general|gemm", PRODUCT),
    (r"norm|softmax|nll_|entropy|pool|lrn|reduce|^sum\b|^mean|^(max|min|pick|biasaddgrad)$|^arg|select_and_scatter", REDUCTION),
    (r"^copy|^cat\b|concat|transpos|flatten|reshape|swapaxis|tensorlist|^(split|pad|slice|stack|roll|pack|expand|squeeze|unsqueeze)",
     LAYOUT),
    (r"fusion|wrapped_|scalar|^(elemwise|broadcast|zeros|ones|full|plus|minus|random|sample|iota|gather|scatter|threefry|add_any)",
     ELEMENTWISE),
))
MARKS = re.compile(r"^aten::_?|^_|mkl_?(native|dnn)?_?(fused)?|^backward_|_backward(_data)?$|_?grad$|_$|^grad_")


@cache
def classify(operator: str) -> str:
    """Return the class of an operator, `WRAPPER` for what computes nothing itself."""
    if UPDATES.search(operator):
        return OPTIMISER
    if CALLERS.search(operator):
        return WRAPPER
    if XLA_LAYOUT.search(operator):
        return LAYOUT
    name = plain(operator)
    if QUESTIONS.fullmatch(name) or (operator.startswith("aten::") and VIEWS.fullmatch(name)):
        return WRAPPER
    if ELEMENTS.fullmatch(name):
        return ELEMENTWISE
    return next((kind for rule, kind in RULES if rule.search(name)), UNCLASSIFIED)


def plain(operator: str) -> str:
    """Take the marks of frameworks and gradients off a name: aten::convolution_backward becomes convolution."""
    if operator == "BiasAddGrad":  # a sum, not the gradient of an addition
        return operator.lower()
    name, before = operator.lower(), ""
    while name != before:
        name, before = MARKS.sub("", name), name
    return name
