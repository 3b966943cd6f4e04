"""`dlbench bisect`: finds the first release in a list that is slower than the first one.

It compares releases live with the first one, and assumes that a regression stays. If that is false,
it finds one place where the speed changed. A comparison that decides nothing is repeated with more
processes, and then stated as inconclusive.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite
from harness.records.table import text_of

REGRESSED, SOUND, INCONCLUSIVE = "regressed", "sound", "inconclusive"
ATTEMPTS = 3  # each with twice the processes of the one before


@dataclass(frozen=True)
class Step:
    """One comparison of a release with the first one: the ratio of step times, and the verdict.

    By default nothing was timed. `measure` is p50 or p99 where those of calls are compared.
    """

    release: str
    processes: int = 0
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    verdict: str = INCONCLUSIVE
    reason: str = ""
    measure: str = ""


@dataclass(frozen=True)
class Answer:
    """The first release shown to be slower, after `last_sound`; those between are inconclusive.

    Without a regression `first` is empty, and `reason` says why.
    """

    steps: tuple[Step, ...]
    last_sound: str = ""
    first: str = ""
    between: tuple[str, ...] = ()
    reason: str = ""


# A release, the attempt from 0, the ratio that divides sound from regressed.
Compare = Callable[[str, int, float], Step]


def search(releases: Sequence[str], threshold: float, compare: Compare) -> Answer:
    """Search `releases` from a sound one to a slower one.

    `threshold` is the slowdown that counts, as a share; the last release must exceed it. The others
    are divided at half of the last one's slowdown (as a factor, but at least the threshold): a
    release regressed if its whole interval lies above, and is sound if it lies below.
    """
    steps: list[Step] = []

    def ask(index: int, cut: float) -> Step:
        for attempt in range(ATTEMPTS):
            steps.append(compare(releases[index], attempt, cut))
            # More processes help against noise, not if a release does not run.
            if steps[-1].verdict != INCONCLUSIVE or steps[-1].reason:
                break
        return steps[-1]

    last = ask(len(releases) - 1, 1 + threshold)
    if last.verdict != REGRESSED:
        reason = f"inconclusive: {last.reason or _width(last)}"
        if last.verdict == SOUND:
            reason = (f"no regression beyond {100 * threshold:g} % between {releases[0]} "
                      f"and {releases[-1]}")
        return Answer(tuple(steps), reason=reason)
    cut = max(1 + threshold, math.sqrt(last.ratio))
    sound, slow, undecided = 0, len(releases) - 1, set[int]()
    while open_ := [index for index in range(sound + 1, slow) if index not in undecided]:
        middle = open_[len(open_) // 2]
        verdict = ask(middle, cut).verdict
        if verdict == REGRESSED:
            slow = middle
        elif verdict == SOUND:
            sound = middle
        else:
            undecided.add(middle)
    between = tuple(releases[sound + 1:slow])
    return Answer(tuple(steps), releases[sound], releases[slow], between)


def refuse_several(suite: Suite, trials: Sequence[Trial]) -> None:
    """Raise WrongUse, with what differs and the remedies, unless `trials` are one workload."""
    if not trials:
        raise WrongUse("bisect follows one workload and the suite has none: "
                       "its `skip` leaves out every one")
    if len(trials) > 1:
        found = "; ".join(f"{name} {', '.join(map(str, values))} ({_remedy(name, values)})"
                          for name, values in _differing(suite, trials).items())
        raise WrongUse(f"bisect follows one workload and the suite has {len(trials)}: {found}")


def measure_of(name: str, suite: Suite, quantiles: Sequence[str]) -> str:
    """Return a measure as comparisons name it: "" for the time. Raises WrongUse for others.

    `quantiles` are those of calls, which only inference has.
    """
    infers = suite.mode == "inference"
    known = ("time", *(quantiles if infers else ()))
    if name not in known:
        why = "" if infers else f"; only calls of inference have {' and '.join(quantiles)}"
        raise WrongUse(f"--measure {name}: name one of {', '.join(known)}{why}")
    return "" if name == "time" else name


def more_processes(suite: Suite, attempt: int) -> dict[str, int]:
    """Return the keys of a suite that double the processes with each attempt."""
    keys = ("processes",) if suite.interval is None else ("processes", "processes_most")
    return {key: getattr(suite, key) * 2**attempt for key in keys}


def decide(low: float, high: float, cut: float) -> str:
    """Return the verdict on an interval of ratios; NaN or one around `cut` decides nothing."""
    if low > cut:
        return REGRESSED
    return SOUND if high < cut else INCONCLUSIVE


def step_of(release: str, rows: pd.DataFrame, cut: float, measure: str = "") -> Step:
    """Read one comparison of `release` with the first one, for one workload.

    `rows` has a ratio for each measure. Too few calls to show the measure asked for are a reason.
    """
    assert rows.index.nunique() == 1
    row = rows.iloc[0]
    processes = max((int(row[column]) for column in ("processes_a", "processes_b")
                     if pd.notna(row[column])), default=0)
    own = rows[rows["measure"] == measure]
    if own.empty:
        reason = row["reason"] or f"too few calls show their {measure}"
        return Step(release, processes, reason=reason, measure=measure)
    ratio, low, high = own.iloc[0][["ratio", "ratio_low", "ratio_high"]]
    return Step(release, processes, ratio, low, high, decide(low, high, cut), row["reason"],
                measure)


def sentence(answer: Answer) -> str:
    """Put an answer into a sentence."""
    if not answer.first:
        return answer.reason
    between = ""
    if answer.between:
        between = f"; {', '.join(answer.between)} could not be decided and may already have it"
    measure = answer.steps[0].measure
    return (f"The first release shown to be slower{f' in {measure}' * bool(measure)} is "
            f"{answer.first}; {answer.last_sound} is not{between}.")


def write(steps: Sequence[Step], file: Path) -> None:
    """Write comparisons as CSV, in the order they were made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = text_of([field.name for field in fields(Step)], map(asdict, steps))
    file.write_text(text, encoding="utf-8")


def _differing(suite: Suite, trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return the keys of the suite in which trials differ, with their values.

    A key whose differences follow from those of an earlier key is left out.
    """
    columns = [_columns(suite, trial) for trial in trials]
    cells = [tuple(each.values()) for each in columns]
    found: dict[str, list[Any]] = {}
    for place, name in enumerate(columns[0]):
        if len({row[:place + 1] for row in cells}) > len({row[:place] for row in cells}):
            # One device has no strategy.
            values = dict.fromkeys(row[place] for row in cells if row[place] != "")
            found[name] = list(suite.scaling if name == "scaling" else values)
    return found


def _columns(suite: Suite, trial: Trial) -> dict[str, Any]:
    """Return what tells trials apart, by key; a key comes after those it may follow from."""
    kinds = set(suite.scaling) if trial.devices > 1 else {"weak"}
    batch = trial.batch if kinds == {"weak"} else trial.global_batch  # as asked for
    several = len(kinds) > 1
    return {"framework": f"{trial.framework}=={trial.release}", "network": trial.network,
            "device": trial.device_kind, "devices": trial.devices,
            "batch": "" if several else batch, "scaling": batch if several else "",
            "threads": trial.threads, "precision": trial.precision, "tuning": trial.tuning,
            "data": trial.data, "strategy": trial.strategy}


def _remedy(name: str, values: Sequence[Any]) -> str:
    remedies = {"framework": "name one", "network": "name one with --network"}
    return remedies.get(name, f"add {name}={values[0]}, for example")


def _width(step: Step) -> str:
    interval = f"{step.low:.3f} to {step.high:.3f}"
    what = f"{step.release}'s {step.measure}" if step.measure else step.release
    return (f"{what} takes {step.ratio:.3f} times as long ({interval}) "
            f"after {step.processes} processes")
