"""The site: every link leads somewhere, a number leads to its raw windows in two clicks, and Chromium sorts, filters and draws."""

import csv
import dataclasses
import html
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis.display import memory
from analysis.records import packed
from analysis.report import report
from analysis.site import grids, links, markdown, publish, writer
from analysis.site.grids import Cell, Grid
from analysis.trials import summary

DOCS = Path(__file__).parents[3] / "docs"
REFUSAL = "the processor has no bf16 instructions"


def row_links(page: Path) -> list[str]:
    return re.findall(r'<td[^>]*><a href="([^"]+)">', page.read_text(encoding="utf-8"))


def test_every_link_leads_to_a_file(published, tmp_path):
    assert links.broken(published, DOCS) == []
    copy = shutil.copytree(published, tmp_path / "site")
    (copy / "campaigns/smoke/index.html").unlink()
    page = copy / "releases.html"
    page.write_text(page.read_text().replace('href="#main"', 'href="#nowhere"').replace("docs/index", "docs/lost"))
    lost = links.broken(copy, DOCS)
    assert ("index.html", "campaigns/smoke/index.html") in lost
    assert {("releases.html", "#nowhere"), ("releases.html", "docs/lost.html")} < set(lost)


def test_nothing_is_fetched_from_elsewhere(published):
    for page in published.rglob("*.html"):
        assert not re.search(r'<(script|link|img)[^>]+(src|href)="(https?:)?//', page.read_text(encoding="utf-8")), page


def test_two_clicks_lead_from_a_number_to_its_raw_windows(published):
    home = published / "campaigns/smoke"
    page = home / row_links(home / "index.html")[0]
    file = next(link for link in links.Links(page).found if link.endswith(".windows.csv"))
    trial = re.search(r"<h1>(.*?)</h1>", page.read_text())[1]
    with (published / "results/smoke/windows.csv").open() as raw, (home / file).open() as own:
        wanted = [row for row in csv.DictReader(raw) if row["trial"] == trial]
        assert [float(row["step_seconds"]) for row in csv.DictReader(own)] == [float(row["step_seconds"]) for row in wanted]
    assert len(wanted) > 20
    assert page.read_text().count(">0.1") > 5  # the windows stand on the page, too


def test_a_refused_row_stands_with_its_reason_and_leads_to_its_page(published):
    text = (published / "campaigns/smoke/index.html").read_text()
    assert REFUSAL in text
    page = next(link for link in row_links(published / "campaigns/smoke/index.html") if "bf16" in link)
    assert REFUSAL in (published / "campaigns/smoke" / page).read_text()


def test_the_audit_and_the_concerns_stand_on_the_campaigns_page(published):
    text = (published / "campaigns/smoke/index.html").read_text()
    assert "<dt>audit</dt><dd>all holds</dd>" in text
    assert "2 cores: the driver" in text


def test_results_that_are_no_campaign_have_a_page(published):
    first = (published / "index.html").read_text()
    assert {'campaigns/verify.html"', 'campaigns/study.html"'} <= set(re.findall(r'href="([^>]*)>', first))
    study = (published / "campaigns/study.html").read_text()
    assert "../results/study/study.html" in study
    assert '<td data-value="0.004">4 ms</td>' in study and '<th scope="col">time</th>' in study
    assert "<td>same</td>" in (published / "campaigns/verify.html").read_text()


def test_the_first_page_groups_results_by_the_question_they_answer(published):
    text = (published / "index.html").read_text()
    questions = re.findall(r'<details id="q\d+"><summary><h3>(.*?)</h3>(.*?)</details>', text, re.DOTALL)
    assert {name: re.findall(r'<h3><a href="campaigns/([^"]+)"', cards) for name, cards in questions} == {
        "Which framework is faster?": ["older/index.html", "smoke/index.html"], "What else was found?": ["study.html"],
        "Why is one slower than another?": ["explained.html"], "Do they train the same network?": ["verify.html"]}
    assert "2 differences explained; the first: alexnet: jax is slower. It is TF32.</p>" in text
    assert "1 of 1 rows are the same.</p>" in text
    parts = re.findall(r'<h3><a href="../(campaigns/[^"]+)"', (published / "campaigns/explained.html").read_text())
    assert parts == ["campaigns/explained/alexnet.html", "campaigns/explained/fcn5.html"]
    assert "fcn5: jax is slower" in (published / parts[1]).read_text()


def test_many_contestants_stand_below_each_other_with_their_links():
    row = [Cell("fcn5"), Cell("64"), Cell("1.5", "a.html", 1.5), Cell("2.5", "b.html", 2.5), Cell("a is faster")]
    table = grids.transposed(Grid(["network", "batch", "a (ms)", "b (ms)", "verdict"], [row]), 2)
    assert table.columns == ["framework", "fcn5, batch 64 (ms)"]
    assert table.rows == [[Cell("a"), row[2]], [Cell("b"), row[3]], [Cell("verdict"), row[4]]]


@pytest.mark.parametrize(("text", "value"), [("2.10 (2.08 to 2.11)", 2.1), ("321 us (213 to 423)", 321e-6), ("1,080 us", 1080e-6),
                                             ("1.5 GiB", 1.5 * 2**30), ("-0.8 %", -0.8), ("1, the fastest", 1.0), ("fp32", None),
                                             ("2026-11-21", None), ("", None)])
def test_a_cell_sorts_by_its_number_in_its_unit(text, value):
    assert grids.cell(text).value == (value if value is None else pytest.approx(value))


def test_releases_of_one_workload_on_one_machine_stand_in_their_order(published):
    text = (published / "releases.html").read_text()
    rows = re.findall(r'<tr><td[^>]*>(\w+), [^<]*</td><td[^>]*>([\d.]+)<', text)
    assert rows == [("pytorch", "2.9.1"), ("pytorch", "2.13.0"), ("tensorflow", "2.9.1"), ("tensorflow", "2.21.0")]


def test_rows_of_several_devices_are_told_apart_by_their_strategy(draw_records, tmp_path):
    read = grids.read(draw_records().write(tmp_path / "campaign"))
    first = read.rows[read.rows["verified"] == "yes"].iloc[0]
    rows = pd.DataFrame([{**first, "devices": 2, "strategy": strategy, "release": release}
                         for strategy in ("ring", "tree") for release in ("1.0", "2.0")])
    campaign = dataclasses.replace(read, rows=rows)
    labels = [label for label, _ in grids.by_release([campaign])]
    assert len(labels) == 2 and "2 devices by ring" in labels[0] and "2 devices by tree" in labels[1]
    every = grids.every_row([campaign])
    assert [row[every.columns.index("strategy")].text for row in every.rows] == ["ring", "ring", "tree", "tree"]


@pytest.mark.parametrize("held", [{}, {"pytorch": 2**30, "tensorflow": 2**31}])
def test_a_campaign_on_a_gpu_says_how_to_read_its_memory(made, tmp_path, held):
    made.put_on_a_gpu(**held)
    folder = made.write(tmp_path / "results" / "made")
    summary.rewrite(folder)
    report.write([folder], folder, plots=False)
    publish.publish([folder], tmp_path / "site", {})
    text = html.unescape((tmp_path / "site/campaigns/made/index.html").read_text())
    section = re.search("<h2>Peak memory</h2>(.*?)(<h2>|$)", text, re.DOTALL)[1]
    assert (memory.HELD_NOTE in section, memory.COUNTED_NOTE in section) == (bool(held), not held)
    assert ("held on the GPU (GiB)" in section) == bool(held)


def test_pages_lead_to_the_documentation(published):
    text = (published / "campaigns/smoke/index.html").read_text()
    assert 'href="../../docs/index.html"' in text
    assert 'href="../../docs/reference/records.html"' in text


def test_the_site_of_packed_records_leads_to_the_packed_files(smoke, tmp_path, monkeypatch):
    folder = smoke.write(tmp_path / "results" / "smoke")
    summary.rewrite(folder)
    (folder / "logs").mkdir()
    for row in smoke.processes:
        (folder / row["log"]).write_text("said\n")
    packed.pack_folder(folder)
    publish.publish([folder], tmp_path / "site", {})
    page = tmp_path / "site/campaigns/smoke" / row_links(tmp_path / "site/campaigns/smoke/index.html")[0]
    found = set(links.Links(page).found)
    assert {"../../results/smoke/windows.csv.gz", "../../results/smoke/logs.tar.gz"} <= found
    assert "../../results/smoke/windows.csv.gz" in links.Links(page.parent / "index.html").found
    assert links.broken(tmp_path / "site", DOCS) == []


def test_large_tables_of_studies_and_plots_that_no_page_shows_stay_in_the_repository(smoke, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LARGE_BYTES", 900)
    campaign, study = smoke.write(tmp_path / "results/smoke"), tmp_path / "results/study"
    (study / "plots").mkdir(parents=True)
    (study / "study.md").write_text("# A study\n\n[table](points.csv) [other](../elsewhere/report.md) ![plot](plots/a.svg)\n")
    for file, size in (("points.csv", 901), ("small.csv", 900), ("plots/a.svg", 901), ("plots/b.svg", 9)):
        (study / file).write_text("1" * size)
    publish.publish([campaign, study], tmp_path / "site", {})
    copied = {file.relative_to(tmp_path / "site/results").as_posix() for file in (tmp_path / "site/results").rglob("*.*")}
    assert copied >= {"smoke/windows.csv", "study/small.csv", "study/plots/a.svg"}
    assert copied.isdisjoint({"study/points.csv", "study/plots/b.svg"})
    page = (tmp_path / "site/campaigns/study.html").read_text()
    assert "points.csv (in the repository only" in page and "<p>table other <img" in page
    assert links.broken(tmp_path / "site", DOCS) == []


def test_a_text_in_a_record_cannot_end_the_script_that_holds_it(published):
    found = writer.embed({"a": "</script><!--<script>", "b": float("nan")})
    assert found == r'{"a":"\u003c/script>\u003c!--\u003cscript>","b":null}'


def test_html_in_a_page_of_markdown_is_text():
    page = markdown.render("# <b>x\" onclick=alert(1)\n\n<script>alert(1)</script>\n\n| a |\n| --- |\n| <img src=x onerror=alert(1)> |\n", str)
    assert "<script" not in page and "<img" not in page and "<b>" not in page and "&quot; onclick=alert(1)</caption>" in page and "&lt;script&gt;" in page
