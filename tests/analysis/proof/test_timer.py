"""A loop that does not wait for its device is found from the windows' own times. Simulated: a queue in front of a device."""

import pandas as pd
import pytest

from analysis.proof import timer
from analysis.records import reader
from analysis.trials import summary

STEP, LAUNCH, LOSS = 0.010, 0.001, 0.0005  # seconds of a step on the device, of queueing one, of reading the loss


def process(number, depth=0, waits=True, steps=(1,) * 8 + (2, 4, 8, 16, 32), timed=5):
    """Time a device with a queue of `depth` steps as the protocol does; without `waits` the clock stops at the last launch."""
    clock = free = 100.0
    rows = []
    for window, length in enumerate([*steps, *[steps[-1]] * timed]):
        start = clock
        ends = []
        for _ in range(length):
            if depth and len(ends) >= depth:
                clock = max(clock, ends[-depth])  # the queue is full
            clock += LAUNCH
            free = max(free, clock) + STEP * (1 + 0.01 * number)
            ends.append(free)
        clock = max(clock, free) if waits else clock
        rows.append({"process": number, "window": window - len(steps), "steps": length, "start": start, "stop": clock,
                     "seconds": clock - start, "step_seconds": (clock - start) / length})
        clock = max(clock, free) + LOSS
    return rows


def windows(**options):
    return pd.DataFrame([row for number in range(3) for row in process(number, **options)])


def test_a_loop_that_waits_is_believed():
    assert timer.reasons(windows()) == []
    assert timer.paces(windows()[lambda rows: rows["process"] == 0]) == pytest.approx(
        {1: 0.0100 * 32 / (32 * 0.010 + 0.001), 2: 1, 4: 1, 8: 1, 16: 1, 32: 1}, rel=0.1)


def test_a_loop_that_does_not_wait_is_found_by_its_short_windows():
    (reason,) = timer.reasons(windows(waits=False, depth=12, timed=1))
    assert reason == ("timer: windows of 1 step are 6.31 times as fast a step as the timed ones, in every process: "
                      "a synchronisation may be missing")


def test_a_loop_that_never_waits_is_found_by_how_long_the_loss_takes():
    (reason,) = timer.reasons(windows(waits=False, steps=(1,) * 8 + (2, 4, 8, 16, 32)))
    assert reason == ("timer: after each window the worker is busy for 905 % of the window's time and more, in every process: "
                      "a synchronisation may be missing")


@pytest.mark.parametrize(("share", "found"), [(0, 0), (0.05, 0), (0.25, 1), (0.3, 1)])
def test_a_loop_that_leaves_a_share_of_each_window_to_the_pause_is_found(share, found):
    rows = windows(steps=(1,) * 8 + (2, 4, 8, 16, 32))
    left = rows["seconds"] * share
    late = rows.assign(stop=rows["stop"] - left, seconds=rows["seconds"] - left,
                       step_seconds=(rows["seconds"] - left) / rows["steps"])
    assert len(timer.reasons(late)) == found


def read_around(rows, after, before):
    """The driver's readings so many seconds after each window, and before the next one."""
    following = rows.groupby("process")["start"].shift(-1)
    readings = pd.concat([rows["stop"] + after, following - before])
    return pd.DataFrame({"process": pd.concat([rows["process"]] * 2), "kind": "edge", "seconds": readings}).dropna()


def test_a_driver_that_reads_counters_for_long_is_not_taken_for_a_busy_worker():
    """Four GPUs that many processes use answered in 20 ms each: 0.08 s passed between windows of 0.1."""
    rows = windows(steps=(1,) * 8 + (2, 4, 8), timed=4)
    late = rows.assign(start=rows["start"] + 0.08 * rows["window"], stop=rows["stop"] + 0.08 * rows["window"])
    edges = read_around(late, LOSS, LOSS)
    assert timer.reasons(late, edges) == []
    for nothing_read in (edges.iloc[:0], edges.assign(kind="fast"), None):  # fast ones are read whether or not there is an answer
        (reason,) = timer.reasons(late, nothing_read)
        assert reason.startswith("timer: after each window the worker is busy for 9")
    assert timer.reasons(late, evaluates=True) == []


@pytest.mark.parametrize("hidden", [True, False])
def test_steps_that_nobody_waited_for_are_found_around_the_readings(hidden):
    """The loss waits for them, or, where it does not, the ranks of the next window do."""
    rows = windows(waits=False, steps=(1,) * 8 + (2, 4, 8, 16, 32))
    pause = (rows.groupby("process")["start"].shift(-1) - rows["stop"]).fillna(0)
    edges = read_around(rows, *((1e-6, pause - 2e-6) if hidden else (pause - 2e-6, 1e-6)))
    (reason,) = timer.reasons(rows, edges)
    assert reason.startswith("timer: after each window the worker is busy for 905 %")


def test_time_that_does_not_follow_the_steps_is_found():
    """A runner that trains eight steps however many are asked for."""
    rows = windows()
    rows["seconds"] = 8 * STEP
    rows["step_seconds"] = rows["seconds"] / rows["steps"]
    rows["stop"], rows["start"] = 1 + rows["window"] + rows["seconds"], 1 + rows["window"]
    assert timer.reasons(rows[rows["window"] >= -2])[0] == (
        "timer: twice the steps take only 1 times as long or less, in every process: time does not follow the steps")


def test_one_busy_process_and_too_few_processes_prove_nothing():
    broken = windows(waits=False, depth=12)
    sound = windows()
    assert timer.reasons(pd.concat([broken[broken["process"] < 2], sound[sound["process"] == 2]])) == []
    assert timer.reasons(broken[broken["process"] < 2]) == []


def test_a_trial_whose_clock_did_not_wait_is_not_verified(made, tmp_path):
    name = made.meta["trials"][0]["trial"]
    for row in made.windows_of(name):
        if row["window"] < 0 and row["steps"] < 4:
            row["step_seconds"] /= 10
    rows = summary.summarise(reader.read(made.write(tmp_path / "campaign"))).set_index("trial")
    assert rows["verified"].to_dict() == {trial: "no" if trial == name else "yes" for trial in rows.index}
    assert "a synchronisation may be missing" in rows.loc[name, "reason"]
