"""What the site shows: the folders of the list, and of those no row without an interval and no planted fault."""

import shutil

import pytest

from analysis.records.text import BadRecords
from analysis.site import selection

KNOWN = {"pytorch", "tensorflow"}


@pytest.fixture
def results(tmp_path, draw_records):
    for name, finished, processes in (("whole", True, 2), ("stopped", False, 2), ("late", False, 3)):
        made = draw_records(networks=("alexnet_cifar",), processes=processes)
        if not finished:
            made.meta["finished"] = None
        made.write(tmp_path / name)
    planted = draw_records(networks=())
    planted.add_trial("pytorch_slower", "fcn5", 64)
    planted.write(tmp_path / "planted")
    return tmp_path


def names(chosen):
    return [folder.name for folder in chosen[0]]


def test_without_a_list_all_but_early_ends_and_planted_faults_are_shown(results):
    chosen = selection.choose(results, KNOWN)
    assert names(chosen) == ["late", "whole"]
    assert chosen[1] == {"stopped": "unfinished: 2 processes of pytorch-2.13.0-alexnet_cifar-128-fp32-stock, and an "
                                    "interval needs 3 (`dlbench run --resume` goes on)",
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
    shutil.copytree(results / "stopped", results / "whole" / "part")
    assert "whole" in selection.choose(results, KNOWN)[1]
