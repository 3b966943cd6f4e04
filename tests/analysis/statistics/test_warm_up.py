"""Windows that are slower in every process alike are found and left out; noise, and one slow process, are not."""

import numpy as np
import pytest

from analysis.display import ranking
from analysis.records import reader
from analysis.statistics import warm_up
from analysis.trials import summary


def draw(rng, processes=5, windows=8, slow=(), noise=0.01):
    """Windows with process effects ten times their noise; `slow` are the factors of the first ones."""
    times = np.exp(10 * noise * rng.standard_normal((processes, 1)) + noise * rng.standard_normal((processes, windows)))
    times[:, :len(slow)] *= slow
    return list(times)


@pytest.mark.parametrize(("slow", "found"), [((), 0), ((1.1,), 1), ((1.3, 1.1), 2), ((1.0, 1.3), 0)])
def test_leading_slow_windows_are_counted(slow, found):
    assert warm_up.leading(draw(np.random.default_rng(1), slow=slow)) == found


def test_at_most_half_of_the_windows_are_warm_up():
    assert warm_up.leading(draw(np.random.default_rng(2), windows=5, slow=(5, 4, 3, 2))) == 2


def test_one_slow_process_is_no_warm_up():
    times = draw(np.random.default_rng(3))
    times[2][0] *= 3
    assert warm_up.leading(times) == 0


@pytest.mark.parametrize("times", [[], [np.array([2.0, 1.0])] * 2, [np.array([2.0])] * 5])
def test_too_few_processes_or_windows_tell_nothing(times):
    assert (warm_up.leading(times), warm_up.drift(times)) == (0, 0.0)


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_one_trial_in_a_hundred_at_most_loses_a_warm_window(noise):
    rng = np.random.default_rng(4)
    assert np.mean([warm_up.leading(draw(rng, noise=noise)) > 0 for _ in range(1000)]) <= 0.02


def test_windows_that_slow_down_all_along_are_a_drift():
    times = [windows * np.linspace(1, 1.2, 8) for windows in draw(np.random.default_rng(5))]
    assert warm_up.leading(times) == 0
    assert warm_up.drift(times) == pytest.approx(0.12, abs=0.02)
    assert warm_up.drift(draw(np.random.default_rng(5))) == 0.0


def test_what_was_left_out_is_stated_and_enters_no_time(made, tmp_path):
    name = made.meta["trials"][0]["trial"]
    honest = summary.summarise(reader.read(made.write(tmp_path / "honest"))).set_index("trial")
    for row in made.windows_of(name):
        if row["window"] == 0:
            row["step_seconds"] *= 1.5
            row["seconds"] *= 1.5
    campaign = reader.read(made.write(tmp_path / "slow"))
    rows = summary.summarise(campaign).set_index("trial")
    assert rows["warm_up_windows"].to_dict() == {trial: int(trial == name) for trial in rows.index}
    assert rows.loc[name, "reason"].startswith("warm-up: the first timed window of each process left out, 5")
    assert rows.loc[name, "step_seconds"] == pytest.approx(honest.loc[name, "step_seconds"], rel=0.005)
    assert [len(windows) for windows in summary.times_of(campaign, name)] == [4] * 5
    timed = [row["steps"] for row in made.windows_of(name) if row["window"] > 0]
    assert rows.loc[name, ["windows", "steps"]].tolist() == [20, sum(timed)]
    assert name in ranking.relative(campaign, rows.reset_index())["trial"].tolist()
