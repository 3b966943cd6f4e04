"""The numbers in docs/method/ are those of the code: a changed tolerance changes its page."""

import pytest

from analysis.aggregation import predictions, strategies
from analysis.audit import audit
from analysis.explain import words
from analysis.proof import plausibility, sameness, timer, tolerances
from analysis.statistics import bootstrap, calibration, warm_up
from analysis.trials import breakdown, counters
from harness.campaign import peaks, process, tracing
from harness.plan.suite import Suite
from harness.proof import judge
from harness.telemetry import sampler
from harness.validation import CHECKOUT
from harness.workers import worker

PAGES = {page.stem: " ".join(page.read_text(encoding="utf-8").split())
         for page in (CHECKOUT / "docs" / "method").glob("*.md")}
LOSS, GRADIENT, LOSSY = tolerances.LOSS, tolerances.GRADIENT, tolerances.LOSSY
SUITE = Suite()
FP32 = tolerances.tolerance_of("fp32")
KINKS = tolerances.kinks_of("resnet50")
RESNET50 = {name: tolerances.tolerance_of(name, KINKS) for name in ("tf32", "bf16")}
WIDENED = ["{:.1f}, {:.1f} and {:.1f}".format(*factors) for factors in (
    [calibration.one_side(n, 0.95) for n in (3, 5, 10)],
    [calibration.two_sides(n, n, 0.0, 0.95) for n in (3, 5, 10)])]
LATER, MAY_BE_MISSING = tolerances.LATER["power_sgd"]


@pytest.mark.parametrize("page, sentence", [
    ("sameness", f"with {SUITE.check.batch} samples, dropout off, and {SUITE.check.steps} optimiser "
                 "steps"),
    ("sameness", f"| relative | {LOSS[0]} u = {FP32.loss:.1e} |"),
    ("sameness", f"| {GRADIENT[0]} u = {FP32.gradient:.1e} |"),
    ("sameness", f"how far each tensor moved in {SUITE.check.steps} steps | the same, of the moves | "
                 f"{judge.FP32_TRAJECTORY} |"),
    ("sameness", f"{LOSS[0]} u + {LOSS[1]} v off and a gradient {GRADIENT[0]} u + {GRADIENT[1]} v, "
                 f"plus a term for kinks, at most {tolerances.MOST}"),
    ("sameness", f"Moves may be {tolerances.MOVED} times as far off"),
    ("sameness", f"not compared where the gradient's limit reaches {tolerances.LOST}"),
    ("sameness", f"relative size e = {tolerances.SUMS} u + v"),
    ("sameness", f"kink term is {tolerances.KINK:.0f} sqrt(k e)"),
    ("sameness", f"at most {judge.DRAWS} draws in all"),
    ("sameness", f"more than {judge.MANY_ACTIVATIONS / 1e6:.0f} MB a sample"),
    ("sameness", f"({LOSS[0]} u + {LOSS[1]} v) step^2"),
    ("sameness", f"{tolerances.KINK:.0f} sqrt(k e) {tolerances.GROWTH:.0f}^(step - 3)"),
    ("sameness", f"below {100 * sameness.FLOOR:.0f} % of the first, differences are divided by "
                 f"{100 * sameness.FLOOR:.0f} % of the first loss"),
    ("sameness", f"Where the limit passes {tolerances.CHAOS} training is chaotic"),
    ("sameness", f"within {100 * tolerances.DROPOUT_LOSS:.0f} %"),
    ("sameness", f"ResNet-50 has {KINKS} layers with kinks, so its gradient limit is "
                 f"{RESNET50['tf32'].gradient:.2f} in tf32 and {RESNET50['bf16'].gradient} in bf16"),
    ("timing", f"The first {process.SINGLE_STEPS} steps of a process"),
    ("timing", f"({SUITE.window_seconds} s unless the suite says otherwise)"),
    ("timing", f"timed windows ({SUITE.windows} unless said)"),
    ("timing", f"({SUITE.processes} rounds unless said)"),
    ("timing", f"more than {100 * warm_up.SMALLEST:.0f} % slower than those after it"),
    ("timing", f"a chance below {100 * warm_up.SIGNIFICANCE:.0f} %"),
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
    ("devices", f"{LOSSY['power_sgd']} for `power_sgd` and {LOSSY['bf16_compress']} for `bf16_compress`"),
    ("devices", f"add up to the reference's within {100 * judge.FIRST_SUM:.0f} %"),
    ("devices", f"trains {tolerances.LATER_STEPS} steps more; of what the last "
                f"{tolerances.LATER_STEPS - LATER} should move, at most {MAY_BE_MISSING} may be missing"),
    ("devices", f"2(n-1) S {strategies.ONE_BIT * 4096:.0f}/4096"),
    ("devices", f"differ by a factor of {predictions.NO_LINE:.0f}, or processes by "
                f"{predictions.APART:.0f}"),
    ("telemetry", f"reads counters every {1000 * sampler.PERIODS['fast']:.0f} ms"),
    ("telemetry", f"does not answer within {sampler.HANG_SECONDS:.0f} s"),
    ("telemetry", f"differ by more than {100 * counters.DISAGREEMENT:.0f} %"),
    ("traces", f"trains {tracing.WARM_UP_STEPS} steps and then {tracing.STEPS}"),
    ("traces", f"more than {100 * breakdown.MOST_MISSING['cuda']:.0f} % of the step missing "
               f"({100 * breakdown.MOST_MISSING['cpu']:.0f} % on a CPU), "
               f"{100 * breakdown.MOST_EXCESS:.0f} % too much"),
    ("traces", f"more than {words.FASTER_THAN_FP32} times as fast as the fp32 peak"),
])
def test_a_number_on_the_page_is_the_codes(page, sentence):
    assert sentence in PAGES[page]
