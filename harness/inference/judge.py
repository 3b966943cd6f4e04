"""Proves inference: an engine's outputs, on inputs that it has not seen, against the reference.

The driver draws inputs, asks for the outputs of a few rows after a call, and compares them with the
float64 reference. How far off a correct engine may be comes from the reference with random
rounding, as for training. The size of an error also tells the precision that an engine really ran.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.inference.answers import Answered, TestPart
from harness.inference.calls import Calls, answers_to
from harness.inference.reference import Asked, Reference
from harness.machine import hardware
from harness.workers.files import AnswerFolder
from harness.workers.worker import Failed, Worker
from runners.arrays import error_along

# The last call has the first one's inputs again, behind others.
PROOF_CALLS = 3
FACTOR = 5.0  # of the largest error of runs with random rounding, as for training
# The error that fp32 may always have: sums in another order, transformed convolutions.
FLOOR = 1e-5
# An error so many times smaller than that of the declared precision is one of a finer precision.
FINER = 32.0
# With a limit this large or larger, a proof would accept outputs that do not depend on the input.
BLIND = 0.5
COARSER = {"fp32": ("tf32", "bf16"), "tf32": ("bf16",), "fp16": ("bf16",)}
# What multiplies 8 bits and adds in 32. x86 processors without it add pairs of products in 16 bits
# (ONNX Runtime's documentation of quantisation: "S8S8 and U8S8").
VNNI = {"avx512_vnni", "avx_vnni"}
SATURATES = "; without VNNI, this processor's sums of 8-bit products saturate at 16 bits"
# A float32 rounding error can move a number to another of INT8's levels. Later layers are then off
# by a share of a level each, and a run with random rounding is as far off as a right engine.
INT8_FACTOR = 2.0
# Among all samples of a test part some meet several such numbers. LeNet-5 was off by 0.6 of the
# limit of a few rows at most in 10,000 samples.
MORE_MOVES = 4.0
# Few rows meet such a number in a network of few layers, so the nearest of them must be nearer.
NEAREST = 0.25


@dataclass(frozen=True)
class Verdict:
    """The outcome for one engine and network: the largest error, and what was allowed."""

    verdict: str
    reason: str = ""
    parameters: int = 0
    output_error: float = math.nan
    output_limit: float = math.nan
    # Only for INT8: the relative distance from the outputs of the network itself, and the share of
    # the compared rows whose largest output is the same.
    quantization_error: float = math.nan
    top1_agreement: float = math.nan
    first_call_seconds: float = math.nan
    failure: str = ""


class InferenceJudge:
    """Builds an engine's network, proves it, and compares the outputs of timed calls."""

    def __init__(self, reference: Reference, limit: float):
        self.reference = reference
        self.limit = limit

    def prepare(self, asked: Asked, timed: Path) -> None:
        """Ask the reference for all that the proof of a trial needs. Raises Failed.

        `timed` is the file of the batches that will be timed.
        """
        for file in (self.reference.proof_inputs(asked), timed):
            self.reference.outputs(asked, file)
            if asked.quantised:
                self.reference.outputs(asked.unquantised(), file)
        if tests := self.reference.tests(asked):
            for form in (asked, asked.unquantised()):
                self.reference.test_outputs(form, tests)
        self._limits(asked)

    def prove(self, worker: Worker, asked: Asked, built: Mapping[str, Any],
              residence: str) -> Verdict:
        """Prove a worker that has built its network. Raises Failed and Unsupported."""
        count, wanted = built["parameters"], asked.network.parameter_count
        if count != wanted:
            return Verdict("different", f"{count:,} parameters for {wanted:,}", count)
        file = self.reference.proof_inputs(asked)
        worker.ask("feed", self.limit, batches=str(file), residence=residence)
        calls = Calls(worker, self.reference, asked, file, self.limit)
        with AnswerFolder(self.reference.folder) as folder:
            first = calls.run(1, folder)[1]
            for _ in range(PROOF_CALLS - 1):
                calls.run(1, folder)
        verdict = replace(self.compare(calls), first_call_seconds=float(first[0]))
        said = built.get("arithmetic", "")
        if said and said != asked.precision:
            return _different(verdict, "; ".join(filter(None, [
                f"the engine says that it computes in {said}, {asked.precision} was asked for",
                verdict.reason])))
        return verdict

    def answers(self, worker: Worker, asked: Asked, tests: TestPart) -> Answered:
        """Let an engine with trained weights answer the test part, and compare all its outputs.

        Raises Failed and Unsupported.
        """
        found = answers_to(worker, tests, self.reference.folder, asked.network.classes, self.limit)
        exact, itself = (self.reference.test_outputs(form, tests)
                         for form in (asked, asked.unquantised()))
        errors = distances(found, exact) / self._unit(asked, exact)
        limit = self._limits(asked)[1] * (MORE_MOVES if asked.quantised else 1)
        # NaN is no small error.
        off = int((~(errors <= limit)).sum())
        fault = (f"{off:,} of {len(errors):,} outputs are off by more than {limit:.2g} of how they "
                 f"differ between inputs, up to {errors.max():.2g}") if off else ""
        return Answered(tests, found.argmax(axis=1), itself.argmax(axis=1), fault)

    def compare(self, calls: Calls) -> Verdict:
        """Compare the outputs of calls with the reference's. Raises Failed."""
        asked = calls.asked
        exact = self.reference.outputs(asked, calls.file)
        unit = self._unit(asked, np.concatenate(exact))
        errors = [distances(outputs, exact[batch]) / unit for batch, outputs in calls.found]
        # max of NaN is NaN here, which no limit allows.
        error = float(np.max(np.concatenate(errors)))
        nearest, limit = self._limits(asked)
        verdict = Verdict("same", "", asked.network.parameter_count, error, limit)
        if asked.quantised:
            verdict = self._with_cost(verdict, calls)
        if reason := self._finer(calls, verdict):
            return _different(verdict, reason)
        if not error <= limit:
            return _different(verdict, f"outputs are off by {error:.2g} of how they differ between "
                                       f"inputs, {limit:.2g} is allowed"
                                       f"{self._signature(asked, error)}")
        # Each row once, however often its batch came.
        last = dict(zip((batch for batch, _ in calls.found), errors, strict=True))
        near = float(np.quantile(np.concatenate(list(last.values())), NEAREST, method="higher"))
        if near > nearest:
            return _different(verdict, f"most outputs are off by {near:.2g} or more of how they "
                                       f"differ between inputs; {nearest:.2g} is allowed for the "
                                       "nearest quarter")
        return self._along(calls, verdict) if limit >= BLIND else verdict

    def _along(self, calls: Calls, verdict: Verdict) -> Verdict:
        """Compare outputs that rounding alone moves about as far as inputs do.

        Errors of rounding have no direction. So they cancel along the differences between the exact
        outputs, where those of an engine that ignores its inputs add up to one.
        """
        exact = self.reference.outputs(calls.asked, calls.file)
        limit = verdict.output_limit if calls.asked.quantised else (
            FACTOR * self.reference.rounding_along(calls.asked))
        if limit >= BLIND:
            return _different(verdict, f"unproven: outputs may be off by {limit:.2g} of how they "
                                       "differ between inputs")
        # All calls, so that one that answered for another's inputs counts.
        error = abs(error_along(np.concatenate([outputs for _, outputs in calls.found]),
                                np.concatenate([exact[batch] for batch, _ in calls.found])))
        verdict = replace(verdict, output_error=error, output_limit=limit)
        if not error <= limit:
            return _different(verdict, f"along the differences between inputs outputs are off by "
                                       f"{error:.2g}, {limit:.2g} is allowed")
        return verdict

    def _unit(self, asked: Asked, exact: np.ndarray) -> float:
        """Return how exact outputs differ: those given, or all of a test part. Raises Failed.

        The few compared images may be of one class, whose outputs differ little.
        """
        if tests := self.reference.tests(asked):
            exact = self.reference.test_outputs(asked, tests)
        unit = unit_of(exact)
        if not unit:
            raise Failed("different", "unproven: the outputs of these weights do not depend on the "
                                      "input")
        return unit

    def _limits(self, asked: Asked) -> tuple[float, float]:
        """Return what is allowed for the nearest rows of outputs, and for all."""
        spread = self.reference.rounding(asked)
        if not asked.quantised:
            limit = FACTOR * spread + FLOOR
            return limit, limit
        moved = max(spread, self.reference.rounding(asked, moves=True))
        return INT8_FACTOR * spread + FLOOR, INT8_FACTOR * moved + FLOOR

    def _with_cost(self, verdict: Verdict, calls: Calls) -> Verdict:
        """Add what quantisation cost: the outputs against those of the network itself."""
        itself = self.reference.outputs(calls.asked.unquantised(), calls.file)
        agrees = [outputs.argmax(axis=-1) == itself[batch].argmax(axis=-1)
                  for batch, outputs in calls.found]
        error = relative([(outputs, itself[batch]) for batch, outputs in calls.found])
        return replace(verdict, quantization_error=error,
                       top1_agreement=float(np.mean(np.concatenate(agrees))))

    def _finer(self, calls: Calls, verdict: Verdict) -> str:
        """Say that an engine computed in a finer precision than asked for; "" if it did not."""
        asked = calls.asked
        if asked.precision == "fp32":
            return ""
        if asked.quantised:
            forms = (self.reference.outputs(form, calls.file)
                     for form in (asked, asked.unquantised()))
            cost = relative(list(zip(*forms, strict=True)))
            # NaN is not finer: the limit refuses it.
            if verdict.quantization_error <= cost / FINER:
                return (f"outputs are off by {verdict.quantization_error:.2g} only from those of "
                        f"the network itself, where INT8 is off by {cost:.2g}: the engine did not "
                        "quantise")
            return ""
        spread = self.reference.rounding(asked)
        if verdict.output_error < spread / FINER:
            return (f"outputs are off by {verdict.output_error:.2g} only, where {asked.precision} "
                    f"is off by about {spread:.2g}: the engine computed in a finer precision")
        return ""

    def _signature(self, asked: Asked, error: float) -> str:
        """Name what may have made such an error: a coarser precision, or sums that saturate."""
        if asked.quantised:
            able = hardware.instructions()
            return SATURATES if "avx2" in able and not able & VNNI else ""
        spreads = {precision: self.reference.rounding(replace(asked, precision=precision))
                   for precision in COARSER.get(asked.precision, ())}
        near = {precision: max(error / spread, spread / error)
                for precision, spread in spreads.items() if spread / FACTOR <= error}
        precision = min(near, key=lambda each: near[each], default="")
        if not precision or not near[precision] <= FACTOR:
            return ""
        return f"; so large an error is that of {precision} (about {spreads[precision]:.2g})"


def unit_of(exact: np.ndarray) -> float:
    """Return how outputs differ: the standard deviation of their distances from their mean.

    It divides by n - 1, so that two outputs give the unit of many (Bessel's correction).
    """
    flat = exact.reshape(len(exact), -1)
    return float(np.sqrt(np.square(flat - flat.mean(axis=0)).sum() / (len(flat) - 1)))


def distances(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the distance of each sample's outputs from the exact ones."""
    apart = np.square(found.astype(np.float64) - exact).reshape(len(exact), -1)
    return np.asarray(np.sqrt(apart.sum(axis=1)))


def relative(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return how far arrays are from exact ones, over all pairs: the relative distance."""
    apart = sum(np.square(distances(found, exact)).sum() for found, exact in pairs)
    return float(np.sqrt(apart / sum(np.square(exact).sum() for _, exact in pairs)))


def _different(verdict: Verdict, reason: str) -> Verdict:
    return replace(verdict, verdict="different", reason=reason)
