"""The numbers in docs/method/ are those of the code: a changed tolerance changes its page."""

import pytest

from analysis.aggregation import predictions
from analysis.audit import audit
from analysis.explain import words
from analysis.proof import plausibility, timer, tolerances
from analysis.statistics import bootstrap, calibration, warm_up
from analysis.strategies import aggregating
from analysis.strategies import table as strategies
from analysis.trials import breakdown, cross_check
from harness.campaign import peaks, process, tracing
from harness.plan.suite import Suite
from harness.proof import case, judge, limits, lossy, questions, verdict
from harness.telemetry import sampler
from harness.validation import CHECKOUT
from harness.workers import worker

PAGES = {page.stem: " ".join(page.read_text(encoding="utf-8").split())
         for page in (CHECKOUT / "docs" / "method").glob("*.md")}
SUITE = Suite()
WIDENED = ["{:.1f}, {:.1f} and {:.1f}".format(*factors) for factors in (
    [calibration.one_side(n, 0.95) for n in (3, 5, 10)],
    [calibration.two_sides(n, n, 0.0, 0.95) for n in (3, 5, 10)])]
LATER, MAY_BE_MISSING = strategies.of("power_sgd").later


@pytest.mark.parametrize("page, sentence", [
    ("sameness", f"batch repeats {SUITE.check.batch} samples"),
    ("sameness", f"takes {SUITE.check.steps} steps from the drawn weights"),
    ("sameness", f"must be right to {100 * case.EXACT:.0f} %"),
    ("sameness", f"runs {limits.DRAWS * limits.RUNS} times with numbers rounded at random"),
    ("sameness", f"{limits.FACTOR:.0f} times as far off as the farthest run, plus "
                 f"{limits.FLOOR * 2**24:.0f} u = {limits.FLOOR:.1e} with u = 2^-24"),
    ("sameness", f"convolution's distance may reach {limits.CONVOLUTION}"),
    ("sameness", f"With dropout, {questions.MASKS} runs with random masks"),
    ("sameness", f"{judge.DRAWS} draws in all"),
    ("sameness", f"in tensors with {100 * verdict.MOST_PARAMETERS:.0f} % of the parameters"),
    ("timing", f"The first {process.SINGLE_STEPS} steps of a process"),
    ("timing", f"({SUITE.window_seconds} s unless the suite says otherwise)"),
    ("timing", f"timed windows ({SUITE.windows} unless said)"),
    ("timing", f"({SUITE.processes} rounds unless said)"),
    ("timing", f"more than {100 * warm_up.SMALLEST:.0f} % slower than those after it"),
    ("timing", f"at the {100 * warm_up.SIGNIFICANCE:.0f} % level"),
    ("timing", f"With {timer.MINIMUM_PROCESSES} processes or more"),
    ("timing", f"more than {timer.FASTER} times as fast"),
    ("timing", f"less than {2 * timer.SLOWER} times as long"),
    ("timing", f"more than {100 * timer.WAITING:.0f} % of a window's time (and {timer.WAITING_SECONDS} "
               "s)"),
    ("timing", f"no processor time for {worker.SILENCE_SECONDS:.0f} s"),
    ("timing", f"2^{process.LONGEST_WINDOW.bit_length() - 1} steps"),
    ("timing", f"({' and '.join(map(str, peaks.SIZES['cuda']))} cubed on a GPU, up to "
               f"{peaks.SIZES['cpu'][-1]} cubed on a CPU)"),
    ("timing", f"The best of {peaks.WINDOWS} windows of {peaks.WINDOW_SECONDS} s"),
    ("timing", f"less than {100 * peaks.SLOWED:.0f} % of the first"),
    ("timing", f"more than {plausibility.PEAK_MARGIN} times the peak's operations"),
    ("timing", f"more than {plausibility.SCALING_MARGIN} n times as fast as one"),
    ("timing", f"more than {plausibility.LINK_MARGIN} times what its PCIe links carry"),
    ("statistics", f"bootstrap of {bootstrap.DRAWS} draws"),
    ("statistics", f"fewer than {bootstrap.MINIMUM_PROCESSES} processes"),
    ("statistics", f"For 3, 5 and 10 processes it is {WIDENED[0]}"),
    ("statistics", f"needs {WIDENED[1]}"),
    ("statistics", f"to a relative {audit.TOLERANCE:.0e}".replace("e-0", "e-")),
    ("devices", f"plus {tolerances.COPIES:.0e} of the largest change"),
    ("devices", f"add up to the reference's within {100 * lossy.FIRST_SUM:.0f} %"),
    ("devices", f"trains {tolerances.LATER_STEPS} steps; of what the last "
                f"{tolerances.LATER_STEPS - LATER} should move, at most {MAY_BE_MISSING} may be missing"),
    ("devices", f"2(n-1) S {aggregating.ONE_BIT * 4096:.0f}/4096"),
    ("devices", f"differ by a factor of {predictions.NO_LINE:.0f}, or processes by "
                f"{predictions.APART:.0f}"),
    ("telemetry", f"reads counters every {1000 * sampler.PERIODS['fast']:.0f} ms"),
    ("telemetry", f"does not answer within {sampler.HANG_SECONDS:.0f} s"),
    ("telemetry", f"differ by more than {100 * cross_check.DISAGREEMENT:.0f} %"),
    ("traces", f"trains {tracing.WARM_UP_STEPS} steps and then {tracing.STEPS}"),
    ("traces", f"more than {100 * breakdown.MOST_MISSING['cuda']:.0f} % of the step missing "
               f"({100 * breakdown.MOST_MISSING['cpu']:.0f} % on a CPU), "
               f"{100 * breakdown.MOST_EXCESS:.0f} % too much"),
    ("traces", f"more than {words.FASTER_THAN_FP32} times as fast as the fp32 peak"),
])
def test_a_number_on_the_page_is_the_codes(page, sentence):
    assert sentence in PAGES[page]
