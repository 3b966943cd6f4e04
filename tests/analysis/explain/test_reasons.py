"""Why slower rows are slower, in a table of the report: on a recorded campaign, whole and with half a trace."""

import shutil

import pandas as pd
import pytest

from analysis.display import ranking
from analysis.explain import reasons
from analysis.records import reader
from analysis.report import report
from analysis.trials import summary
from tests.analysis.explain.test_gap import PYTORCH, RECORDED


@pytest.fixture
def h200(tmp_path, monkeypatch):
    """A copy of the recorded campaign, whose one process a trial shall be enough to call PyTorch slower."""
    compare = ranking.relative
    monkeypatch.setattr(ranking, "relative", lambda *given: compare(*given).replace(ranking.TOO_FEW, "slower"))
    return shutil.copytree(RECORDED, tmp_path / "h200-fcn5")


def table_of(folder):
    campaign = reader.read(folder)
    return reasons.table(campaign, ranking.relative(campaign, summary.summarise(campaign)))


def test_a_slower_row_has_its_gap_and_the_parts_that_make_it(h200):
    (row,) = table_of(h200).to_dict("records")
    assert (row["slower"], row["faster"], row["parts sum to"]) == ("pytorch", "jax", "100 %")
    largest, *_ = row["mostly"].split("; ")
    assert largest.startswith("GPU idle, waiting for the host +")
    shares = [int(part.rpartition("(")[2].removesuffix(" %)")) for part in row["mostly"].split("; ")]
    assert shares == sorted(shares, reverse=True)
    assert min(map(abs, shares)) >= 10


def test_half_a_trace_explains_nothing_and_says_so(h200):
    lines = (h200 / "kernels.csv").read_text().splitlines(keepends=True)
    own = [line for line in lines if line.startswith(PYTORCH)]
    (h200 / "kernels.csv").write_text("".join(line for line in lines if line not in own[:len(own) // 2]))
    (row,) = table_of(h200).to_dict("records")
    assert row["mostly"].startswith("not explained: its trace is not whole")
    assert (row["longer a step"], row["parts sum to"]) == ("", "")


def test_a_campaign_without_traces_has_no_such_table(h200, tmp_path):
    (h200 / "kernels.csv").unlink()
    assert table_of(h200).empty
    report.write([h200], tmp_path / "report", plots=False)
    assert "Why the slower ones" not in (tmp_path / "report" / "report.md").read_text()


def test_the_report_shows_the_table(h200, tmp_path):
    report.write([h200], tmp_path / "report", plots=False)
    found = pd.read_csv(tmp_path / "report" / "tables" / "reasons.csv")
    assert found["slower"].tolist() == ["pytorch"]
    for page in ("report.md", "report.html"):
        assert "Why the slower ones are slower" in (tmp_path / "report" / page).read_text()


def test_a_row_that_is_not_shown_to_be_slower_is_not_explained(h200, monkeypatch):
    monkeypatch.undo()
    assert table_of(h200).empty
