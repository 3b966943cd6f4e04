"""`dlbench bisect`: the first release in a list that is slower than the first one, found by comparing it with others live.

It assumes that a regression stays once it has come: releases before it are as fast as the first, those from it on as slow as the
last. Where that is false it finds one place where the speed changed. A comparison that decides nothing is repeated with more
processes, and then stated as inconclusive; it is never guessed.
"""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import WrongUse
from harness.plan.planner import Trial
from harness.plan.suite import Suite

REGRESSED, SOUND, INCONCLUSIVE = "regressed", "sound", "inconclusive"
ATTEMPTS = 3  # each with twice the processes of the one before


@dataclass(frozen=True)
class Step:
    """One comparison of a release with the first one: the ratio of its time to the first's, and what it says."""

    release: str
    processes: int
    ratio: float
    low: float
    high: float
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """`first` is the first release shown to be slower, after `last_sound`; between them lie only inconclusive ones.

    Without a regression `first` is empty, and `reason` says whether none was seen or nothing could be decided.
    """

    steps: tuple[Step, ...]
    last_sound: str = ""
    first: str = ""
    between: tuple[str, ...] = ()
    reason: str = ""


Compare = Callable[[str, int, float], Step]  # a release, the attempt from 0, the ratio that divides sound from regressed


def search(releases: Sequence[str], threshold: float, compare: Compare) -> Answer:
    """Search `releases` from a sound one to a slower one. `threshold` is the slow-down that counts, as a share.

    The last release must be shown to exceed the threshold. The others are divided at half of what it shows (as a factor, no less
    than the threshold): a release whose whole interval lies above has the regression, one whose interval lies below has not.
    """
    steps: list[Step] = []

    def ask(index: int, cut: float) -> Step:
        for attempt in range(ATTEMPTS):
            steps.append(compare(releases[index], attempt, cut))
            if steps[-1].verdict != INCONCLUSIVE or steps[-1].reason:  # more processes mend noise, not a release that does not run
                break
        return steps[-1]

    last = ask(len(releases) - 1, 1 + threshold)
    if last.verdict != REGRESSED:
        found = f"no regression beyond {100 * threshold:g} % between {releases[0]} and {releases[-1]}"
        return Answer(tuple(steps), reason=found if last.verdict == SOUND else f"inconclusive: {last.reason or _width(last)}")
    cut = max(1 + threshold, math.sqrt(last.ratio))
    sound, slow, undecided = 0, len(releases) - 1, set[int]()
    while candidates := [index for index in range(sound + 1, slow) if index not in undecided]:
        middle = candidates[len(candidates) // 2]
        verdict = ask(middle, cut).verdict
        if verdict == REGRESSED:
            slow = middle
        elif verdict == SOUND:
            sound = middle
        else:
            undecided.add(middle)
    return Answer(tuple(steps), releases[sound], releases[slow], tuple(releases[sound + 1:slow]))


def refuse_several(suite: Suite, trials: Sequence[Trial]) -> None:
    """Raise WrongUse, with what differs and the remedies, where the trials that a suite plans of a release are not one workload."""
    if not trials:
        raise WrongUse("bisect follows one workload and the suite has none: its `skip` leaves out every one")
    if len(trials) > 1:
        found = "; ".join(f"{name} {', '.join(map(str, values))} ({_remedy(name, values)})"
                          for name, values in _differing(suite, trials).items())
        raise WrongUse(f"bisect follows one workload and the suite has {len(trials)}: {found}")


def more_processes(suite: Suite, attempt: int) -> dict[str, int]:
    """The keys of a suite that give an attempt twice the processes of the one before; `interval` may then ask for twice as many."""
    keys = ("processes",) if suite.interval is None else ("processes", "processes_most")
    return {key: getattr(suite, key) * 2**attempt for key in keys}


def decide(low: float, high: float, cut: float) -> str:
    """Divide an interval of ratios at `cut`; one that contains it, or is missing, decides nothing."""
    if low > cut:
        return REGRESSED
    return SOUND if high < cut else INCONCLUSIVE


def step_of(release: str, rows: pd.DataFrame, cut: float) -> Step:
    """Read one comparison, of one workload, of `release` with the first one."""
    assert len(rows) == 1
    row = rows.iloc[0]
    processes = max((int(row[column]) for column in ("processes_a", "processes_b") if pd.notna(row[column])), default=0)
    verdict = decide(row["ratio_low"], row["ratio_high"], cut)
    return Step(release, processes, row["ratio"], row["ratio_low"], row["ratio_high"], verdict, row["reason"])


def tell(answer: Answer) -> str:
    """Put an answer into a sentence."""
    if not answer.first:
        return answer.reason
    between = f"; {', '.join(answer.between)} could not be decided and may already have it" if answer.between else ""
    return f"The first release shown to be slower is {answer.first}; {answer.last_sound} is not{between}."


def write(steps: Sequence[Step], file: Path) -> None:
    """Write comparisons as CSV, in the order they were made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(Step)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: "" if value != value else value for key, value in asdict(step).items()} for step in steps)


def _differing(suite: Suite, trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """The suite's words in which trials differ, with their values; none whose differences follow from those of a word before it."""
    columns = [_columns(suite, trial) for trial in trials]
    cells = [tuple(each.values()) for each in columns]
    found: dict[str, list[Any]] = {}
    for place, name in enumerate(columns[0]):
        if len({row[:place + 1] for row in cells}) > len({row[:place] for row in cells}):
            values = suite.scaling if name == "scaling" else dict.fromkeys(row[place] for row in cells)
            found[name] = [value for value in values if value != ""]  # as the strategy of one device
    return found


def _columns(suite: Suite, trial: Trial) -> dict[str, Any]:
    """What tells trials apart, by the suite's words: each stands behind those that it may follow from."""
    kinds = set(suite.scaling) if trial.devices > 1 else {"weak"}
    batch = trial.batch if kinds == {"weak"} else trial.global_batch  # as asked for
    several = len(kinds) > 1
    return {"framework": f"{trial.framework}=={trial.release}", "network": trial.network, "device": trial.device_kind,
            "devices": trial.devices, "batch": "" if several else batch, "scaling": batch if several else "",
            "threads": trial.threads, "precision": trial.precision, "tuning": trial.tuning, "data": trial.data,
            "strategy": trial.strategy}


def _remedy(name: str, values: Sequence[Any]) -> str:
    remedies = {"framework": "name one", "network": "name one with --network"}
    return remedies.get(name, f"add {name}={values[0]}, for example")


def _width(step: Step) -> str:
    interval = f"{step.low:.3f} to {step.high:.3f}"
    return f"{step.release} takes {step.ratio:.3f} times as long ({interval}) after {step.processes} processes"
