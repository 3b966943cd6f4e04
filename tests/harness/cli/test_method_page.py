"""The numbers in docs/method.md are those of the code: a changed tolerance changes its page."""

import pytest

from analysis.audit import audit
from analysis.proof import plausibility, sameness, timer, tolerances
from analysis.statistics import bootstrap, calibration, warm_up
from harness.campaign import peaks, process
from harness.plan.suite import Suite
from harness.proof import judge
from harness.validation import CHECKOUT
from harness.workers import worker

PAGE = " ".join((CHECKOUT / "docs" / "method.md").read_text(encoding="utf-8").split())
LOSS, GRADIENT = tolerances.LOSS, tolerances.GRADIENT
SUITE = Suite()


@pytest.mark.parametrize("sentence", [
    f"with {SUITE.check.batch} samples, dropout off, and {SUITE.check.steps} optimiser steps",
    f"| relative | {LOSS[0]} u = {tolerances.tolerance_of('fp32').loss:.1e} |",
    f"| {GRADIENT[0]} u = {tolerances.tolerance_of('fp32').gradient:.1e} |",
    f"how far each tensor moved in {SUITE.check.steps} steps | the same, of the moves | {judge.FP32_TRAJECTORY} |",
    f"{LOSS[0]} u + {LOSS[1]} v off and a gradient {GRADIENT[0]} u + {GRADIENT[1]} v, plus a term for kinks, "
    f"at most {tolerances.MOST}",
    f"moves may be {tolerances.MOVED} times as far off",
    f"not compared where that limit reaches {tolerances.LOST}",
    f"relative size e = {tolerances.SUMS} u + v",
    f"kink term is {tolerances.KINK:.0f} sqrt(k e)",
    f"at most {judge.DRAWS} draws in all",
    f"more than {judge.MANY_ACTIVATIONS / 1e6:.0f} MB a sample",
    f"{tolerances.KINK:.0f} sqrt(k e) {tolerances.GROWTH:.0f}^(step - 3)",
    f"below {100 * sameness.FLOOR:.0f} % of the first loss",
    f"Where that passes {tolerances.CHAOS} training is chaotic",
    f"within {100 * tolerances.DROPOUT_LOSS:.0f} %",
    f"The first {process.SINGLE_STEPS} steps of a process",
    f"({SUITE.window_seconds} s unless the suite says otherwise)",
    f"timed windows ({SUITE.windows} unless said)",
    f"({SUITE.processes} rounds unless said)",
    f"bootstrap of {bootstrap.DRAWS} draws",
    f"fewer than {bootstrap.MINIMUM_PROCESSES} processes",
    f"more than {100 * warm_up.SMALLEST:.0f} % slower than those behind it",
    f"a chance below {100 * warm_up.SIGNIFICANCE:.0f} %",
    f"more than {timer.FASTER} times as fast",
    f"less than {2 * timer.SLOWER} times as long",
    f"more than {100 * timer.WAITING:.0f} % of a window's time (and {timer.WAITING_SECONDS} s)",
    f"For 3, 5 and 10 processes it is {calibration.one_side(3, 0.95):.1f}, {calibration.one_side(5, 0.95):.1f} and "
    f"{calibration.one_side(10, 0.95):.1f}",
    "needs " + "{:.1f}, {:.1f} and {:.1f}".format(*(calibration.two_sides(n, n, 0.0, 0.95) for n in (3, 5, 10))),
    f"no processor time for {worker.SILENCE_SECONDS:.0f} s",
    f"2^{process.LONGEST_WINDOW.bit_length() - 1} steps",
    f"({' and '.join(map(str, peaks.SIZES['cuda']))} cubed on a GPU, up to {peaks.SIZES['cpu'][-1]} cubed on a CPU)",
    f"The best of {peaks.WINDOWS} windows of {peaks.WINDOW_SECONDS} s",
    f"less than {100 * peaks.SLOWED:.0f} % of the first",
    f"more than {plausibility.PEAK_MARGIN} times the peak's operations",
    f"more than {plausibility.SCALING_MARGIN} n times as fast as one",
    f"more than {plausibility.LINK_MARGIN} times what its PCIe links carry",
    f"to a relative {audit.TOLERANCE:.0e}".replace("e-0", "e-"),
    f"ResNet-56 ({tolerances.kinks_of('resnet56')} kinks) a gradient may be "
    f"{tolerances.tolerance_of('bf16', tolerances.kinks_of('resnet56')).gradient} off",
])
def test_a_number_on_the_page_is_the_codes(sentence):
    assert sentence in PAGE
