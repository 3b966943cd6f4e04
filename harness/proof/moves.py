"""Compares losses, gradients, momentum and running statistics with the reference's.

Gradients and momentum show in how the parameters moved. Limits come from `harness.proof.limits`.
"""

import math
from collections.abc import Mapping

import numpy as np

from harness.proof import distances, dropout
from harness.proof.case import EXACT, SIGMAS, Case
from harness.proof.distances import Errors
from harness.proof.limits import Allowed
from harness.proof.plays import Play, Plays
from harness.proof.questions import PLAIN, ZERO
from harness.proof.verdict import Findings, nan_last, range_of

# If the rounding of its weights is at most this share of a tensor's move, the tensor cannot stand
# still, for any limits. A standstill is a fault of scale just below 1.
SURE_TO_MOVE, BARELY = 0.1, 0.99
# Where rounding may make a gradient so many times as long, it cancels and only rounding is left: a
# shift before a convolution and batch norm has none. Then its size says nothing of a fault: it was
# inf times the reference's, which is too small for fp32, in bf16 in four frameworks.
CANCELS = 10.0


def compare_loss(case: Case, found: Play, findings: Findings) -> None:
    """Compare the first loss, with dropout within what random masks make of it."""
    wanted, _ = case.answer(PLAIN)
    mean, masked = dropout.loss(case) if case.network.has_dropout else (1.0, 0.0)
    wanted *= mean
    findings.loss_error = abs(found.losses[0] - wanted) / abs(wanted)
    if not findings.allows(findings.loss_error, case.limits(PLAIN).loss + masked):
        findings.faults.append(f"loss {found.losses[0]:.6g} for {wanted:.6g}")


def compare_gradients(case: Case, kind: str, found: Play, findings: Findings,
                      again: Play | None = None) -> None:
    """Compare the gradients that the first step shows with the reference's.

    With dropout `again` is that step with other masks: masks may let a small layer stand still.
    """
    errors = {part: distances.errors_from(found.sums[0]["gradients"][part])
              for part, _, _ in case.parts}
    allowed = {name: _allowed(case, kind, name, error) for name, error in errors.items()}
    still = []
    for name, limit in allowed.items():
        # A tensor whose move is larger than the rounding of its weights cannot stand still.
        moves = errors[name].size > 0 and errors[name].rounded_distance < SURE_TO_MOVE
        moves = moves and not (again and dropout.may_stop(case, name))
        stands = errors[name].norm == -1 and (again is None or again.sums[0]["stands"][name] != 0)
        still += [name] if moves and stands else []
        scale = min(limit.coefficient, limit.norm)
        findings.seen.setdefault(name, []).append(min(scale, BARELY) if moves else scale)
    if still:
        findings.exact_faults.append(f"{len(still)} of {len(errors)} tensors did not move, from "
                                     f"the loss backwards first {still[-1]}")
    masked = case.network.has_dropout
    if masked:
        errors = {name: dropout.from_masked_mean(case, name, error)
                  for name, error in errors.items()}
    else:
        findings.gradient_error = max(_layer_error(case, errors),
                                      np.nan_to_num(findings.gradient_error))
    strays = {name: words for name, error in errors.items()
              if (words := _beyond(findings, error, allowed[name], distance=not masked))}
    if strays:
        last = list(strays)[-1]
        op = case.network.layer(last.partition(".")[0]).op
        findings.faults.append(f"{len(strays)} of {len(errors)} gradients differ, from the loss "
                               f"backwards first {last} ({op}, {strays[last]})")


def compare_momentum(case: Case, found: Plays, findings: Findings) -> None:
    """Compare what momentum added to each later step with the move before it."""
    momentum = case.network.momentum
    if case.network.has_dropout and not found.zero:
        findings.remarks.append("momentum was not compared: dropout's masks hide it")
    if not momentum or not found.own:
        return
    strays: dict[str, Errors] = {}
    scattered: dict[str, float] = {}
    worst = 0.0
    for own in found.own:
        for name in case.trained_from(ZERO if found.zero else PLAIN):
            error = distances.errors_from(own.sums[0]["momentum"][name])
            # Beyond rounding, honest runners had less than 0.1 % on an H200, in bf16 and tf32.
            apart = math.hypot(EXACT, 2 * error.rounded_distance)
            # Rounded moves are longer on the average, so a share of them is less.
            allowed = EXACT + SIGMAS * error.rounded_coefficient + error.rounded_distance**2
            if not findings.allows(abs(error.coefficient), allowed):
                strays.setdefault(name, error)
            elif not findings.allows(error.distance, apart):
                scattered.setdefault(name, error.distance)
            if allowed < 2 * EXACT or name in strays:
                beyond = distances.quotient(error.beyond_rounding, error.size)
                worst = max(worst, abs(error.coefficient), beyond, key=nan_last)
    findings.momentum_error = worst
    if strays:
        name = max(strays, key=lambda name: nan_last(abs(strays[name].coefficient)))
        findings.exact_faults.append(
            f"{len(strays)} tensors have another momentum: "
            f"{(1 + strays[name].coefficient) * momentum:.3g} in {name}, not {momentum}")
    if scattered:
        name = max(scattered, key=lambda name: nan_last(scattered[name]))
        findings.faults.append(
            f"{len(scattered)} tensors have a momentum that does not follow the move before: "
            f"relative error {scattered[name]:.2g} in {name}, allowed {EXACT}")


def compare_running_statistics(case: Case, found: Play, findings: Findings) -> None:
    """Compare batch norm's running statistics after the first step."""
    norms = [layer for layer in case.network.layers if layer.op == "batch_norm"]
    if norms and found.hidden:
        findings.remarks.append(f"running statistics were not compared: {found.hidden}")
        return
    strays = {}
    _, answer = case.answer(PLAIN)
    for layer in norms:
        for name in ("mean", "variance"):
            full = f"{layer.name}.{name}"
            ours = found.statistics[0].get(full)
            if ours is None or not np.isfinite(ours).all():
                strays[full] = "no running statistic was answered"
                continue
            count = case.batch * math.prod(layer.output_shape[1:])
            error = _statistic_error(ours.astype(np.float64), answer[f"statistic/{full}"],
                                     float(name == "variance"), layer.attributes["running"], count)
            if words := _beyond(findings, error, case.limits(PLAIN).tensors[full]):
                strays[full] = words
    if strays:
        first = next(iter(strays))
        findings.faults.append(f"{len(strays)} running statistics differ, first {first} "
                               f"({strays[first]})")


def _allowed(case: Case, kind: str, name: str, error: Errors) -> Allowed:
    """Return a part's limits: of its rounding, of stored weights, and of dropout masks."""
    limit, summed = case.limits(kind).tensors[name], case.summed(name)
    stored, whole = SIGMAS * error.rounded_coefficient, error.rounded_distance
    more = stored + whole**2 + summed
    masked = dropout.gradient(case, name) if case.network.has_dropout else (0.0, 0.0)
    return Allowed(limit.coefficient + more + masked[0], limit.norm + more + masked[1],
                   math.hypot(limit.distance, 2 * whole, summed))


def _layer_error(case: Case, errors: Mapping[str, Errors]) -> float:
    """Return the largest distance of a whole layer's gradient, as a share of its norm."""
    worst = 0.0
    for layer in case.network.layers:
        ours = [error for part, error in errors.items() if part.partition(".")[0] == layer.name]
        error = distances.quotient(math.hypot(*(each.beyond_rounding for each in ours)),
                                   math.hypot(*(each.size for each in ours)))
        worst = max(worst, error, key=nan_last)
    return worst


def _beyond(findings: Findings, error: Errors, allowed: Allowed, distance: bool = True) -> str:
    """Return in words how a tensor's gradient misses its limits, or ""."""
    times = 1 + error.coefficient
    if math.isnan(error.distance):
        return "not a number"
    if max(allowed.coefficient, allowed.norm) >= CANCELS:
        return ""
    if not findings.allows(abs(error.coefficient), allowed.coefficient):
        if times == 0 and error.norm == -1:
            return "it did not move"
        return f"{times:.4g} times the right one, allowed {range_of(allowed.coefficient)}"
    if not findings.allows(abs(error.norm), allowed.norm):
        return (f"its norm is {1 + error.norm:.4g} times the right one, "
                f"allowed {range_of(allowed.norm)}")
    if distance and not findings.allows(error.distance, allowed.distance):
        return f"relative error {error.distance:.2g}, allowed {allowed.distance:.2g}"
    return ""


def _statistic_error(ours: np.ndarray, right: np.ndarray, start: float, running: float,
                     count: int) -> Errors:
    """Compare the moves of a running statistic from `start`: 0 for a mean, 1 for a variance.

    Frameworks keep the variance with or without Bessel's correction for `count` values.
    """
    found = [distances.errors_of(ours - start, right - start)]
    if start and count > 1:
        biased = start * running + (ours - start * running) * (count - 1) / count
        found.append(distances.errors_of(biased - start, right - start))
    return min(found, key=lambda error: nan_last(error.distance))
