"""Compares a step whose logits are all zero: learning rate, loss function and weight decay.

The weights of the last layer, or of the norm before a tied one, are zero. So the loss of K classes
is ln K, the gradient of the head's bias is known exactly, and nothing below the head may move.
"""

import math

import networks
from harness.proof import distances, dropout
from harness.proof.case import EXACT, Case
from harness.proof.distances import Errors
from harness.proof.plays import Play
from harness.proof.questions import CALIBRATED, PLAIN, bias_gradient, head_of
from harness.proof.verdict import Findings, nan_last, range_of


def compare(case: Case, found: Play, findings: Findings) -> None:
    """Compare the loss, the tensors that must not move, and the head's own step."""
    head = head_of(case.network)
    if not head:
        return
    chance = math.log(case.network.classes)
    if not findings.allows(abs(found.losses[0] / chance - 1), EXACT):
        findings.exact_faults.append(f"loss {found.losses[0]:.6g} for {chance:.6g} where all "
                                     "logits are zero")
    moved = {name: float(largest) for name, (largest,) in found.sums[0]["changes"].items()
             if largest != 0}
    if moved:
        worst = max(moved, key=lambda name: nan_last(moved[name]))
        findings.exact_faults.append(
            f"{len(moved)} tensors moved although their gradient is zero, most of all {worst} by "
            f"{moved[worst]:.2g} of its largest value: weight decay, or updates of another step")
    if not case.keeps_only_sums:
        _compare_head(case, head, found, findings)


def _compare_head(case: Case, head: networks.Layer, found: Play, findings: Findings) -> None:
    """Compare how far the head's bias and weights, or shift and scale, moved: the bias first.

    A head without a bias has its weights alone, whose gradient is not known exactly.
    """
    start, (_, answer) = case.start(CALIBRATED), case.answer(CALIBRATED)
    weight, *biases = (f"{head.name}.{parameter}" for parameter in head.parameters)
    mean, masked = dropout.head(case) if case.network.has_dropout else (1.0, 0.0)
    gradients = {bias: bias_gradient(case.question) for bias in biases}
    gradients[weight] = mean * answer[f"gradient/{weight}"]
    allowed = {bias: EXACT + case.summed(bias) for bias in biases}
    allowed[weight] = case.limits(PLAIN).tensors[weight].coefficient + masked
    findings.rate = min(allowed.values())
    for name, gradient in gradients.items():
        error = distances.step_errors(start[name], found.parameters[0][name], gradient,
                                      case.network.learning_rate)
        apart = abs(error.coefficient) if name == weight else error.distance
        if not findings.allows(apart, allowed[name]):
            findings.exact_faults.append(_rate_words(case, name, error, allowed[name]))
            break


def _rate_words(case: Case, name: str, error: Errors, allowed: float) -> str:
    """Name the optimiser by how far one of the head's tensors moved."""
    times, network, devices = 1 + error.coefficient, case.network, case.question.devices
    digits = 3 if abs(times - 1) > EXACT else 5
    found = f"{name} moved {times:.{digits}g} times as far as it must (allowed {range_of(allowed)})"
    if abs(times) < EXACT:
        return f"{found}: nothing was trained"
    if devices > 1 and abs(times / devices - 1) <= EXACT:
        return f"{found}: the sum over {devices} devices instead of the mean"
    if abs(times - 1 - network.momentum) <= EXACT:
        return f"{found}: Nesterov momentum"
    if abs(error.coefficient) <= allowed:
        return f"{found}, but not in its direction: the batch or the loss is another one"
    rate = (f"learning rate {times * network.learning_rate:.{digits}g}, not "
            f"{network.learning_rate}, or another loss")
    if not name.endswith((".bias", ".shift")) and abs(times - 1) > EXACT:
        reads = "what its layer reads is not what the network gives"
        # A bias has shown the learning rate.
        has_bias = len(network.layer(name.partition(".")[0]).parameters) > 1
        return f"{found}: {reads}" if has_bias else f"{found}: {reads}, or {rate}"
    return f"{found}: {rate}"
