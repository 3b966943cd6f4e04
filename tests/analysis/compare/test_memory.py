"""What both sides of a comparison hold on a GPU: one quantity for both, and a verdict that chance cannot give."""

import pandas as pd
import pytest

from analysis.compare import memory, report, verdicts
from analysis.compare.memory import LESS, MORE
from analysis.compare.report import Comparison
from analysis.compare.verdicts import NO_DIFFERENCE, TOO_FEW
from analysis.display.memory import COUNTED_NOTE, HELD_NOTE
from analysis.records import reader

GIB = 2**30


@pytest.fixture
def compared(draw_records, tmp_path):
    """Compare two releases of PyTorch whose processes hold these bytes, on a CPU without any."""
    def make(*held, device="cuda"):
        sides = []
        for name, size in zip(("old", "new"), held, strict=True):
            made = draw_records(networks=())
            made.add_trial("pytorch", "alexnet_cifar", 128)
            if device == "cuda":
                made.put_on_a_gpu(**({"pytorch": size} if size else {}))
            sides.append(verdicts.recorded(reader.read(made.write(tmp_path / name))))
        return Comparison(verdicts.compare(*sides), *sides)
    return make


@pytest.mark.parametrize(("ours", "theirs", "word"), [
    ([5, 5, 6, 6, 6], [7, 7, 7, 8, 9], MORE), ([7, 7, 7, 8, 9], [5, 5, 6, 6, 6], LESS),
    ([5, 5, 6, 6, 7], [7, 7, 7, 8, 9], NO_DIFFERENCE), ([5] * 5, [5] * 5, NO_DIFFERENCE),
    ([5, 5, 5], [7, 7, 7], TOO_FEW), ([], [7] * 5, ""), ([7] * 5, [], ""),
])
def test_a_side_holds_more_if_each_of_enough_processes_does(ours, theirs, word):
    assert memory.verdict(ours, theirs, 0.05) == word


def test_many_workloads_need_more_processes():
    assert [memory.verdict([1] * 5, [2] * 5, 0.05 / rows) for rows in (6, 7)] == [MORE, TOO_FEW]


@pytest.mark.parametrize(("factor", "word"), [(2, MORE), (1, NO_DIFFERENCE)])
def test_two_releases_compare_by_what_the_driver_charged(compared, factor, word):
    found = compared(GIB, factor * GIB)
    (row,) = found.rows.to_dict("records")
    assert list(found.rows.columns) == [*verdicts.COLUMNS, *memory.COLUMNS]
    assert [row[name] for name in memory.COLUMNS] == [GIB + 4 * 2**20, factor * GIB + 4 * 2**20, word]
    (cell,) = report.answer(found)["held on the GPU A, B (GiB)"]
    assert cell == f"1.00, {factor}.00: {word}"


def test_a_side_of_an_earlier_release_leaves_both_with_the_allocator_s_count(compared, tmp_path):
    found = compared(0, 2 * GIB)
    (row,) = found.rows.to_dict("records")
    assert (row["device_memory_bytes_b"], row["memory_verdict"]) == (2 * GIB + 4 * 2**20, "")
    assert pd.isna(row["device_memory_bytes_a"])
    assert report.answer(found)["memory A, B (MiB)"].tolist() == ["357, 357"]
    report.write(found, tmp_path / "out")
    page = (tmp_path / "out" / "compare.md").read_text()
    assert COUNTED_NOTE in page and HELD_NOTE not in page


def test_the_page_says_which_memory_is_compared(compared, tmp_path):
    report.write(compared(GIB, GIB), tmp_path / "out")
    assert HELD_NOTE + memory.HOW_TO_READ in (tmp_path / "out" / "compare.md").read_text()


def test_a_comparison_on_a_cpu_keeps_its_columns(compared, tmp_path):
    found = compared(0, 0, device="cpu")
    assert list(found.rows.columns) == verdicts.COLUMNS
    assert report.answer(found)["memory A, B (MiB)"].tolist() == ["357, 357"]
    report.write(found, tmp_path / "out")
    assert "Memory is the peak while training." in (tmp_path / "out" / "compare.md").read_text()
