"""Campaigns of several nodes become one: their rows and proofs stay, and the node is what intervals are over."""

import json

import pytest

from analysis.audit import consistency
from analysis.compare import verdicts
from analysis.records import reader
from analysis.records.text import BadRecords
from analysis.trials import summary
from harness.errors import WrongUse
from harness.records import joined
from tests.analysis.conftest import make_records

NODES = ("n1", "n2", "n3")


@pytest.fixture
def parts(tmp_path):
    """Three nodes, of which the last takes twice as long at everything."""
    for number, node in enumerate(NODES):
        made = make_records(networks=("fcn5",), processes=4)
        made.prove_each_process()
        for window in made.windows:
            window["stop"] = window["start"] + window["seconds"] * (1.0, 1.01, 2.0)[number]
            window["seconds"] = window["stop"] - window["start"]
            window["step_seconds"] = window["seconds"] / window["steps"]
        (made.write(tmp_path / node) / "logs").mkdir()
        (tmp_path / node / "logs" / "0.log").write_text(node)
    return [tmp_path / node for node in NODES]


@pytest.fixture
def whole(parts, tmp_path):
    joined.join(parts, tmp_path / "out")
    summary.rewrite(tmp_path / "out")
    return tmp_path / "out"


def test_every_row_is_there_once_with_its_node_and_log(whole):
    campaign = reader.read(whole)
    for name in {trial["trial"] for trial in campaign.trials}:
        rows = campaign.rows("processes", name)
        assert rows["process"].tolist() == list(range(12))
        assert rows["node"].tolist() == [node for node in NODES for _ in range(4)]
        assert len(campaign.rows("windows", name)) == 3 * len(reader.read(whole.parent / "n1").rows("windows", name))
    assert sorted(campaign.processes["order"]) == list(range(len(campaign.processes)))
    assert campaign.processes["log"].iloc[0] == "logs/n1/0.log" and (whole / "logs/n3/0.log").read_text() == "n3"
    assert set(campaign.joined["machines"]) == set(NODES)


def test_intervals_are_over_nodes_and_ratios_within_them(whole):
    campaign = reader.read(whole)
    rows = summary.summarise(campaign)
    assert set(rows["repeated_on_nodes"]) == {3} and set(rows["processes"]) == {12}
    assert all("the slowest takes" in reason for reason in rows["reason"])
    # A node that is twice as slow widens the interval of a time, and of no ratio.
    assert all(rows["step_seconds_high"] > 1.5 * rows["step_seconds"])
    batch = rows[rows["batch"] == 512].to_dict("records")
    sides = [verdicts.Side(row["framework"], campaign, rows[rows["trial"] == row["trial"]]) for row in batch]
    [pair] = verdicts.compare(*sides).to_dict("records")
    assert pair["ratio_high"] / pair["ratio_low"] < 1.5


def test_the_audit_knows_the_nodes_of_a_joined_campaign(whole):
    """The audit of whole campaigns of a cluster is in tests/harness/cluster; these simulated ones have other faults."""
    def found():
        return {finding.column for finding in consistency.check(reader.read(whole))} & {"node", "order", "process"}

    assert found() == set()
    table = whole / "processes.csv"
    table.write_text(table.read_text().replace(",n2\n", ",n1\n", 1))
    assert found() == {"node"}


def test_repeats_of_a_calibration_are_cut_on_each_node(whole):
    campaign = reader.read(whole)
    campaign.meta.update(comparison={"a": "x", "b": "x", "repeats": 2}, suite={**campaign.meta["suite"], "processes": 4})
    first, second = verdicts.repeats_of(campaign)
    assert sorted(set(first.processes["process"])) == [0, 1, 4, 5, 8, 9]
    assert sorted(set(second.processes["process"])) == [2, 3, 6, 7, 10, 11]


def test_joining_again_replaces_a_joined_campaign_but_no_other(whole, parts):
    joined.join(parts, whole)
    with pytest.raises(WrongUse, match="holds a campaign already"):
        joined.join(parts, parts[0])
    with pytest.raises(WrongUse, match="is joined already"):
        joined.join([whole, parts[0]], whole.parent / "more")


@pytest.mark.parametrize(("change", "said"), [
    ({"seed": 7}, "seed is not that of n1"), ({"source_hash": "f" * 64}, "source_hash"), ({"trials": []}, "trials|no trial"),
    ({"machine": {"cpu": {"model": "another"}, "gpus": []}}, "machine.cpu")])
def test_nodes_that_measured_something_else_are_refused(parts, tmp_path, change, said):
    page = parts[1] / "campaign.json"
    page.write_text(json.dumps({**json.loads(page.read_text()), **change}))
    with pytest.raises((WrongUse, BadRecords), match=said):
        joined.join(parts, tmp_path / "out")


def test_one_folder_and_two_of_one_name_are_refused(parts, tmp_path):
    for folders in (parts[:1], [parts[0], parts[0]]):
        with pytest.raises(WrongUse, match="name two folders or more"):
            joined.join(folders, tmp_path / "out")
