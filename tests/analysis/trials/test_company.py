"""Rows that were timed beside other programs are counted, by the processor time that was neither the driver's nor its workers'."""

import pytest

from analysis.records import reader
from analysis.trials import company


def beside(made, others: float, trials=None):
    """Let other programs use `others` processors while windows of trials are timed; our own use 1.9 of 2."""
    made.meta["machine"]["cpu"] = {"logical": 2, "allowed": 2}
    for trial, process in dict.fromkeys((row["trial"], row["process"]) for row in made.windows):
        for row in made.windows:
            if (row["trial"], row["process"]) == (trial, process) and (trials is None or trial in trials):
                for seconds in (row["start"] - 0.001, row["stop"] + 0.001):
                    made.counters.append({"trial": trial, "process": process, "device": "host", "kind": "own", "seconds": seconds,
                                          "own_seconds": 1.9 * seconds, "cpu_seconds": (1.9 + others) * seconds})


@pytest.mark.parametrize(("others", "said"), [(0.0, []), (0.15, []), (0.8, ["Other programs used 0.8 of 2 processors while 8 of 8 rows were timed."])])
def test_what_is_not_ours_is_other_programs(made, tmp_path, others, said):
    beside(made, others)
    found = company.remarks(reader.read(made.write(tmp_path)))
    assert [remark.partition(" They")[0] for remark in found] == [text.replace("8 of 8", f"{len(made.meta['trials'])} of {len(made.meta['trials'])}") for text in said]


def test_processors_that_a_row_leaves_free_are_for_others(made, tmp_path):
    beside(made, 0.8)
    for trial in made.meta["trials"]:
        trial["threads"] = 1
    assert company.remarks(reader.read(made.write(tmp_path))) == []


def test_only_rows_with_company_are_counted(made, tmp_path):
    lonely, *crowded = [trial["trial"] for trial in made.meta["trials"]]
    beside(made, 0.0, [lonely])
    beside(made, 1.2, crowded)
    [remark] = company.remarks(reader.read(made.write(tmp_path)))
    assert f"while {len(crowded)} of {len(crowded) + 1} rows were timed" in remark


@pytest.mark.parametrize("change", [{"nodes": 2}, {}])
def test_nothing_is_said_of_processes_that_the_driver_did_not_start(made, tmp_path, change):
    """Ranks that Slurm starts on a node, and a container's."""
    beside(made, 1.0)
    for trial in made.meta["trials"]:
        trial.update(change)
        if not change:
            made.meta["environments"][f"{trial['framework']}=={trial['release']}"] = {
                "release": trial["release"], "python": "3.12", "packages": [], "container": {"image": "any"}}
    assert company.remarks(reader.read(made.write(tmp_path))) == []


def test_campaigns_of_earlier_releases_did_not_count_it(made, tmp_path):
    assert company.remarks(reader.read(made.write(tmp_path))) == []
