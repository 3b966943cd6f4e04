"""caveats.csv: an unranked row leaves every ranking, and each table marks its row and says why."""

import pandas as pd
import pytest

from analysis.audit import audit
from analysis.compare import report as compare_report
from analysis.compare import verdicts
from analysis.compare.report import Comparison
from analysis.display import ranking
from analysis.records import manifest, reader
from analysis.records.text import BadRecords
from analysis.report import report, tables
from analysis.site import grids, index
from analysis.trials import caveats, summary

HEADER = "trial,what,since,ranking\n"
PYTORCH, TENSORFLOW = (f"{name}-alexnet_cifar-128-fp32-stock"
                       for name in ("pytorch-2.13.0", "tensorflow-2.21.0"))
WHAT = "it ran in fp16 (since 2026-11-21)"


@pytest.fixture
def folder(made, tmp_path):
    """Return a function that writes the campaign with a caveat on PyTorch's row."""
    def write(how):
        written = made.write(tmp_path / how)
        row = f"{PYTORCH},it ran in fp16,2026-11-21,{how}\n"
        (written / "caveats.csv").write_text(HEADER + row)
        return written
    return write


def test_an_unranked_row_is_shown_with_its_reason_and_leaves_every_ranking(folder, tmp_path):
    campaign = reader.read(folder("unranked"))
    rows = summary.summarise(campaign)
    row = rows.set_index("trial").loc[PYTORCH]
    assert (row["status"], row["verified"], row["caveat"]) == ("ok", "no", WHAT)
    assert row["reason"] == f"unranked by a caveat: {WHAT}"
    speeds = ranking.relative(campaign, rows)
    assert speeds["trial"].tolist() == [TENSORFLOW]
    answer = tables.answer(rows, speeds)
    assert answer["pytorch (ms)"].iloc[0].endswith(", not verified †")
    assert answer["verdict"].tolist() == ["only tensorflow"]
    report.write([campaign.folder], tmp_path / "report", plots=False)
    page = (tmp_path / "report" / "report.md").read_text()
    assert page.count(f"† {WHAT}: pytorch, alexnet_cifar, batch 128.") == 1
    assert page.count(ranking.SEE_FIRST) == 3


def test_a_ranked_row_keeps_its_rank_and_has_a_mark_and_a_remark(folder):
    campaign = reader.read(folder("ranked"))
    rows = summary.summarise(campaign)
    speeds = ranking.relative(campaign, rows)
    assert set(speeds["trial"]) == {PYTORCH, TENSORFLOW}
    assert tables.times(rows, speeds)["framework"].tolist() == ["pytorch †", "tensorflow"]
    assert tables.remarks(rows)["remark"].tolist() == [f"caveat: {WHAT}"]
    assert ranking.caveats(rows) == [f"† {WHAT}: pytorch, alexnet_cifar, batch 128."]


def test_a_caveat_of_many_rows_is_said_once(made, tmp_path):
    rows = summary.summarise(reader.read(made.write(tmp_path))).assign(caveat="slow")
    rows = pd.concat([rows, rows.assign(batch=256, trial=rows["trial"] + "-256")], ignore_index=True)
    assert ranking.caveats(rows) == ["† slow: pytorch, alexnet_cifar; tensorflow, alexnet_cifar."]
    rows.loc[0, "caveat"] = ""
    assert ranking.caveats(rows) == ["† slow: tensorflow, alexnet_cifar; pytorch, alexnet_cifar, batch 256."]


@pytest.mark.parametrize(("how", "verdict"), [
    ("ranked", "no difference seen"), ("unranked", "not compared")])
def test_a_comparison_says_the_caveat_and_compares_no_unranked_row(folder, how, verdict):
    side = verdicts.recorded(reader.read(folder(how)))
    comparison = Comparison(verdicts.compare(side, side), side, side)
    rows = comparison.rows.set_index("trial_a")
    assert rows["verdict"].to_dict() == {PYTORCH: verdict, TENSORFLOW: "no difference seen"}
    assert compare_report.remarks(comparison) == [
        f"† alexnet_cifar, batch 128, pytorch: A: {WHAT}; B: {WHAT}."]
    assert compare_report.answer(comparison)["workload"].iloc[0].endswith("pytorch †")


def test_the_site_and_the_index_show_the_caveat(folder):
    written = folder("unranked")
    summary.rewrite(written)
    published = grids.read(written)
    grid = grids.every_row([published])
    shown = {row[1].text: row[5].text for row in grid.rows}
    assert shown == {"pytorch †": "not verified", "tensorflow": "verified"}
    assert grids.answer(published).is_marked
    assert index.cards([published], [])[0].facts.endswith("1 of 2 rows verified, 1 with a caveat")
    line, note = index.readme(written.parent).splitlines()[-3::2]
    assert line.endswith("| 1 of 2, 1 with a caveat †")
    assert note.startswith("† The report of the folder says")


def test_the_audit_derives_a_row_again_with_its_caveat(folder):
    written = folder("unranked")
    summary.rewrite(written)
    manifest.write_manifest(written)
    (written / "caveats.csv").write_text(HEADER)
    found = {(finding.file, finding.column) for finding in audit.audit(written)}
    assert {("caveats.csv", ""), ("trials.csv", "verified")} <= found


def test_without_the_file_no_row_has_a_caveat_and_the_table_no_column(made, tmp_path):
    rows = summary.rewrite(made.write(tmp_path))
    assert rows["caveat"].tolist() == ["", ""]
    assert "caveat" not in (tmp_path / "trials.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(("text", "said"), [
    ("trial,what\na,b\n", "row 2: write the columns trial,what,since,ranking"),
    (HEADER + f"{PYTORCH},late, cold,2026-11-21,ranked\n", "quote text with commas"),
    (HEADER + f"{PYTORCH},late\n", "row 2: write the columns"),
    (HEADER + f"{PYTORCH},,2026-11-21,ranked\n", "row 2: column what is empty: write a value"),
    (HEADER + "jax,late,2026-11-21,ranked\n", "jax is no trial of campaign.json"),
    (HEADER + f"{PYTORCH},late,2026-11-21,maybe\n", "'maybe': write ranked or unranked"),
])
def test_a_file_that_cannot_be_meant_is_refused_with_its_row(made, tmp_path, text, said):
    folder = made.write(tmp_path)
    (folder / "caveats.csv").write_text(text)
    with pytest.raises(BadRecords) as refusal:
        caveats.read(reader.read(folder))
    assert str(refusal.value).startswith(f"{folder / 'caveats.csv'}: row 2: ")
    assert said in str(refusal.value)
