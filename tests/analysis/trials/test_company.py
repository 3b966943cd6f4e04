"""Rows that were timed beside other programs are counted, by the processor time that was neither the driver's nor its workers'."""

import pandas as pd
import pytest

from analysis.display import ranking
from analysis.records import reader
from analysis.report import tables
from analysis.trials import company, summary


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
    assert len(crowded) == 1 and "while 1 of 2 rows was timed" in remark


def test_one_row_is_counted_in_the_singular(made, tmp_path):
    crowded, *_ = [trial["trial"] for trial in made.meta["trials"]]
    beside(made, 0.8, [crowded])
    [remark] = company.remarks(reader.read(made.write(tmp_path)))
    assert "while 1 of 1 row was timed" in remark


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


@pytest.mark.parametrize(("others", "kind", "verdict"), [
    (0.0, "cpu", "times"), (0.3, "cpu", "times"), (0.8, "cpu", ranking.CROWDED), (0.8, "cuda", "times"),
])
def test_rows_on_processors_that_others_used_are_not_compared(made, tmp_path, others, kind, verdict):
    """Rows on GPUs keep their rank: few of them wait for the host."""
    beside(made, others)
    for trial in made.meta["trials"]:
        trial["device_kind"] = kind
    campaign = reader.read(made.write(tmp_path))
    rows = summary.summarise(campaign)
    speeds = ranking.relative(campaign, rows)
    answers = tables.answer(rows, speeds)["verdict"]
    assert len(answers) and all(verdict in answer for answer in answers)
    said = tables.times(rows, speeds)["relative speed"].tolist()
    assert (set(said) == {ranking.CROWDED}) is (verdict == ranking.CROWDED)
    assert ("1, the fastest" in said) is (verdict == "times")


def test_a_row_without_company_is_compared_with_its_like_alone(made, tmp_path):
    """Of three rows the slowest had company: the other two compare."""
    rows = summary.summarise(reader.read(made.write(tmp_path / "lonely")))
    third = rows.iloc[[-1]].assign(trial="third", framework="jax", step_seconds=rows["step_seconds"].max() * 2)
    table = pd.concat([rows, third], ignore_index=True)
    campaign = reader.read(tmp_path / "lonely")
    times = {trial: summary.times_of(campaign, trial) for trial in rows["trial"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(company, "crowded", lambda campaign: {"third"})
        speeds = ranking.relative(campaign, table, times=lambda campaign, trial: times.get(trial, times[rows["trial"].iloc[-1]]))
    verdicts = speeds.set_index("trial")["verdict"].to_dict()
    assert verdicts["third"] == ranking.CROWDED
    assert ranking.FASTEST in verdicts.values()
    assert list(verdicts.values()).count(ranking.CROWDED) == 1
