"""What the site shows: the folders of the list, and of those nothing unfinished and no planted fault."""

import json

import pytest

from analysis.records.text import BadRecords
from analysis.site import selection

KNOWN = {"pytorch", "tensorflow"}


@pytest.fixture
def results(tmp_path, draw_records):
    for name, change in (("whole", {}), ("stopped", {"finished": None})):
        made = draw_records(networks=("alexnet_cifar",))
        made.meta.update(change)
        made.write(tmp_path / name)
    planted = draw_records(networks=())
    planted.add_trial("pytorch_slower", "fcn5", 64)
    planted.write(tmp_path / "planted")
    return tmp_path


def names(chosen):
    return [folder.name for folder in chosen[0]]


def test_without_a_list_all_but_unfinished_campaigns_and_planted_faults_are_shown(results):
    chosen = selection.choose(results, KNOWN)
    assert names(chosen) == ["whole"]
    assert chosen[1] == {"stopped": "unfinished (`dlbench run --resume` completes it)",
                         "planted": "pytorch_slower: no framework has this name, so it is a planted fault"}


def test_the_list_names_what_is_shown(results):
    (results / "published.txt").write_text("# what readers see\n\nwhole  # the first\n")
    (results / "other").mkdir()
    chosen = selection.choose(results, KNOWN)
    assert names(chosen) == ["whole"] and chosen[1]["other"] == "not listed"


@pytest.mark.parametrize(("text", "told"), [
    ("whole\nstopped\n", "line 2: stopped: unfinished"), ("planted\n", "line 1: planted: pytorch_slower: no framework"),
    ("whole\nlost\n", "line 2: lost: no such folder"), ("# nothing\n", "lists no folder")])
def test_a_list_that_cannot_be_shown_is_refused_by_its_line(results, text, told):
    (results / "published.txt").write_text(text)
    with pytest.raises(BadRecords, match=told):
        selection.choose(results, KNOWN)


def test_an_unfinished_part_of_a_folder_counts(results):
    inner = results / "whole" / "part"
    inner.mkdir()
    page = json.loads((results / "stopped/campaign.json").read_text())
    (inner / "campaign.json").write_text(json.dumps(page))
    assert "whole" in selection.choose(results, KNOWN)[1]
