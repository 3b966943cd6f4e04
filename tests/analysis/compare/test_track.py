"""Timelines of releases: the slower one is named, and a machine that changes between two comparisons makes none."""

import numpy as np
import pandas as pd
import pytest

from analysis.compare import track
from analysis.compare.releases import read_range
from analysis.compare.verdicts import FASTER, NO_DIFFERENCE, NOT_COMPARED, SLOWER, NotComparable
from analysis.statistics import bootstrap
from tests.analysis.conftest import make_records

RELEASES = ["2.9.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0"]


def write_history(folder, slower, machine=None, base="2.9.0", networks=("alexnet_cifar", "resnet56"), refused=()):
    """Write a comparison of each release with the base; `slower` and `machine` are factors by release."""
    for number, (release, factor) in enumerate(slower.items()):
        made = make_records(networks=())
        pace = (machine or {}).get(release, 1.0)
        for network in networks:
            for side, of, times in (("A", base, 1.0), ("B", release, factor)):
                status = {"status": "unsupported", "reason": "no such layer"} if (release, network, side) in refused else {}
                made.add_trial("pytorch", network, 128, release=of, side=side, slower=pace * times, seed=number, **status)
        made.prove_each_process()
        made.meta.update(name=release, comparison={"a": f"pytorch=={base}", "b": f"pytorch=={release}", "repeats": 1})
        made.write(folder / release)
    return folder


def verdicts_of(timeline, workload):
    rows = timeline.rows[timeline.rows["workload"].str.startswith(workload)]
    return dict(zip(rows["release"], rows["verdict"], strict=True))


def test_the_release_that_became_slower_is_named_and_those_after_it_are_not(tmp_path):
    slower = {"2.10.0": 1.0, "2.11.0": 1.25, "2.12.0": 1.25, "2.13.0": 0.9}
    machine = {"2.11.0": 1.4, "2.12.0": 0.7}  # on days when the whole machine is slower or faster
    timeline = track.read(write_history(tmp_path, slower, machine))
    same = NO_DIFFERENCE
    for workload in ("alexnet_cifar", "resnet56"):
        assert verdicts_of(timeline, workload) == {"2.9.0": "", "2.10.0": same, "2.11.0": SLOWER, "2.12.0": same, "2.13.0": FASTER}
    rows = timeline.regressions
    assert rows[["release", "before"]].to_numpy().tolist() == [["2.11.0", "2.10.0"]] * 2
    assert (rows["change_low"] > 1).all() and rows["change"].to_numpy() == pytest.approx([1.25] * 2, rel=0.1)
    assert track.headline(timeline).startswith("Slower: 2.11.0 in alexnet_cifar, batch 128, 1.2")


def test_a_release_without_a_workload_is_skipped_and_the_next_compares_with_the_one_before(tmp_path):
    slower = {"2.10.0": 1.0, "2.11.0": 1.3, "2.12.0": 1.3}
    timeline = track.read(write_history(tmp_path, slower, refused={("2.11.0", "resnet56", "B")}))
    assert verdicts_of(timeline, "resnet56") == {"2.9.0": "", "2.10.0": NO_DIFFERENCE, "2.11.0": NOT_COMPARED, "2.12.0": SLOWER}
    assert timeline.regressions["before"].tolist() == ["2.10.0", "2.10.0"]
    assert track.headline(timeline).endswith(" 1 of 8 rows could not be compared.")


def test_a_release_before_the_base_is_compared_with_it(tmp_path):
    timeline = track.read(write_history(tmp_path, {"2.9.0": 0.7, "2.11.0": 1.0}, base="2.10.0", networks=("resnet56",)))
    assert verdicts_of(timeline, "resnet56") == {"2.9.0": "", "2.10.0": SLOWER, "2.11.0": NO_DIFFERENCE}
    assert timeline.rows["change"].iloc[1] == pytest.approx(1 / 0.7, rel=0.1)


def test_other_bases_in_one_folder_are_refused(tmp_path):
    write_history(tmp_path, {"2.10.0": 1.0})
    write_history(tmp_path, {"2.12.0": 1.0}, base="2.11.0")
    with pytest.raises(NotComparable, match=r"comparisons with pytorch==2.11.0 and pytorch==2.9.0; a timeline has one base"):
        track.read(tmp_path)


def test_the_page_has_a_plot_a_table_and_what_could_not_be_measured(tmp_path):
    timeline = track.read(write_history(tmp_path, dict.fromkeys(RELEASES[1:], 1.0)), ["B (pytorch==2.8.0) could not be built"])
    paths = track.write(timeline, tmp_path)
    assert sorted(path.name for path in paths) == ["track.csv", "track.html", "track.md", "track.png", "track.svg"]
    text = (tmp_path / "track.md").read_text()
    assert "# pytorch from 2.9.0 to 2.13.0" in text and "B (pytorch==2.8.0) could not be built" in text
    assert "No release of 5 is shown to be slower. The base is pytorch==2.9.0." in text
    table = pd.read_csv(tmp_path / "track.csv")
    assert table["release"].tolist() == RELEASES * 2


def test_equal_releases_on_a_machine_that_drifts_raise_no_more_alarms_than_stated(monkeypatch):
    """120 changes of equal releases; process effects ten times the windows' noise. Without the base they would be found."""
    monkeypatch.setattr(bootstrap, "DRAWS", 1000)
    rng = np.random.default_rng(7)

    def times(pace=1.0):
        return list(pace * np.exp(0.03 * rng.standard_normal((5, 1)) + 0.003 * rng.standard_normal((5, 8))))

    found = [bootstrap.step((times(1.3), times(1.3)), (times(), times())).contains(1) for _ in range(120)]
    assert np.mean(found) >= 0.92
    assert np.mean([bootstrap.ratio(times(1.3), times()).contains(1) for _ in range(20)]) == 0


def test_a_change_of_fifteen_per_cent_is_found_and_two_processes_tell_nothing():
    rng = np.random.default_rng(11)

    def times(pace=1.0, processes=8):
        return list(pace * np.exp(0.01 * rng.standard_normal((processes, 1)) + 0.001 * rng.standard_normal((processes, 8))))

    found = bootstrap.step((times(1.15 * 2), times(2)), (times(), times()))
    assert found.low > 1 and found.contains(1.15)
    assert not bootstrap.step((times(processes=2), times()), (times(), times())).has_interval


@pytest.mark.parametrize(("text", "inside", "outside"), [
    ("2.9..2.13", ["2.9.0", "2.9.1", "2.13.0", "2.13.1", "2.10"], ["2.8.1", "2.14.0", "2.14.0.dev1", "of today"]),
    ("2.13.0", ["2.13.0"], ["2.13.1", "2.12.0"]),
    ("0.4.30..0.4.35", ["0.4.35", "0.4.35.1"], ["0.4.36"]),
])
def test_a_range_includes_its_ends_with_their_patches(text, inside, outside):
    found = read_range(text)
    assert [each for each in inside if not found.holds(each)] == [] == [each for each in outside if found.holds(each)]


@pytest.mark.parametrize("text", ["2.13..2.9", "first..last", "..", ""])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ValueError, match=r"write releases as in 2.9..2.13|ends before it begins"):
        read_range(text)
