"""The site: every link leads somewhere, a number leads to its raw windows in two clicks, and Chromium sorts, filters and draws."""

import csv
import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from analysis.records import packed
from analysis.site import grids, links, markdown, publish, writer
from analysis.site.grids import Cell, Grid
from analysis.trials import summary

DOCS = Path(__file__).parents[3] / "docs"
REFUSAL = "the processor has no bf16 instructions"


@pytest.fixture(scope="module")
def published(tmp_path_factory, smoke, draw_records) -> Path:
    """The site of a campaign with refused rows, one of an older release, a folder of verdicts and one with a page of its own."""
    root = tmp_path_factory.mktemp("published")
    older = draw_records(networks=("alexnet_cifar",))
    for trial in older.meta["trials"]:
        trial["release"] = "2.9.1"
    for row in older.processes:
        row["release"] = "2.9.1"
    for name, made in (("smoke", smoke), ("older", older)):
        summary.rewrite(made.write(root / "results" / name))
    (root / "results/verify").mkdir()
    (root / "results/verify/verdicts.csv").write_text("framework,network,verdict\njax,fcn5,same\n")
    (root / "results/study").mkdir()
    (root / "results/study/study.html").write_text("<p>a study</p>")
    (root / "results/study/study.md").write_text("# A study\n\n| shape | time |\n| --- | --- |\n| 3 | 4 ms |\n")
    for name in ("fcn5", "alexnet"):
        folder = root / "results/explained" / name
        folder.mkdir(parents=True)
        sentences = f"- {name}: jax is slower.\n- It is TF32.\n- No more.\n"
        (folder / "explain.md").write_text(f"# Why jax and pytorch differ\n\nA is jax.\n\n{sentences}")
    publish.publish(sorted((root / "results").iterdir()), root / "site", {"smoke": "all holds"})
    return root / "site"


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
    assert "1 of 1 pairs of framework and network are the same.</p>" in text
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


def test_a_text_in_a_record_cannot_end_the_script_that_holds_it(published):
    found = writer.embed({"a": "</script><!--<script>", "b": float("nan")})
    assert found == r'{"a":"\u003c/script>\u003c!--\u003cscript>","b":null}'


def scripted(page: Path, script: str) -> str:
    """The text of `page` with a script that runs after it has loaded and leaves what it puts into `found` as the page's title."""
    told = f"const found = {{}}; {script}; document.title = JSON.stringify(found);"
    return page.read_text(encoding="utf-8").replace("</body>", f"<script>setTimeout(() => {{ {told} }}, 1500);</script></body>")


def in_chromium(page: Path, script: str, width: int = 1280) -> dict:
    """Open a copy of `page` in headless Chromium, run `script` and return what it puts into `found`, on that page or the last."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no Chromium here: apt-get install chromium")
    copy = page.with_name("tested.html")
    copy.write_text(scripted(page, script), encoding="utf-8")
    asked = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},900",
             "--virtual-time-budget=8000", f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", copy.as_uri()]
    shown = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout
    copy.unlink()
    return json.loads(re.search(r"<title>(\{.*?\})</title>", shown)[1].replace("&lt;", "<").replace("&amp;", "&"))


def test_in_chromium_tables_sort_and_filter_and_figures_are_drawn(published):
    script = """
      const cells = (n) => [...document.querySelectorAll(`.tabulator-row .tabulator-cell[tabulator-field="${n}"]`)];
      const texts = (n) => cells(n).map((cell) => cell.textContent);
      const table = Tabulator.findTable(".tabulator")[0];
      found.before = texts("c2");
      table.setSort("c2", "asc");
      found.sorted = texts("c2");
      table.setHeaderFilterValue("c0", "resnet56");
      found.filtered = texts("c0");
      found.links = document.querySelectorAll(".tabulator-row a").length"""
    found = in_chromium(published / "rows.html", script)
    times = [float(text.replace(",", "")) for text in found["sorted"] if text[0].isdigit()]
    assert times == sorted(times) and found["before"] != found["sorted"]
    assert set(found["filtered"]) == {"resnet56"} and found["links"]
    drawn = in_chromium(published / "campaigns/smoke/index.html", """
      found.figures = document.querySelectorAll("figure.plot").length;
      found.drawn = document.querySelectorAll("figure.plot .main-svg .scatterlayer").length""")
    assert drawn["figures"] == drawn["drawn"] == 3


@pytest.mark.parametrize("width", [1280, 390])
def test_in_chromium_what_records_say_is_text_and_runs_nothing(published, width):
    """Titles, tooltips, filters and hidden columns took names of frameworks and of CSV columns for HTML."""
    hostile = "&lt;img src=x onerror='window.run = 1'&gt;"
    page = published / "hostile.html"
    text = (published / "rows.html").read_text(encoding="utf-8")
    page.write_text(re.sub(r"(<t[hd][^>]*>)([^<]*)(</t[hd]>)", rf"\1\2{hostile}\3", text), encoding="utf-8")
    script = """
      const heading = document.querySelector(".tabulator-col");
      heading.dispatchEvent(new MouseEvent("mousemove", { bubbles: true }));
      const filter = document.querySelector(".tabulator-header-filter input[type=search], .tabulator-header-filter input");
      filter.focus(); filter.click();
      found.titles = [...document.querySelectorAll(".tabulator-col-title")].map((title) => title.textContent);
      found.images = document.querySelectorAll("img[src=x]").length;
      found.run = window.run || 0"""
    found = in_chromium(page, script, width)
    page.unlink()
    assert (found["run"], found["images"]) == (0, 0)
    assert all("onerror" in title for title in found["titles"] if title.strip()) and found["titles"]


def test_html_in_a_page_of_markdown_is_text():
    page = markdown.render("# <b>x\" onclick=alert(1)\n\n<script>alert(1)</script>\n\n| a |\n| --- |\n| <img src=x onerror=alert(1)> |\n", str)
    assert "<script" not in page and "<img" not in page and "<b>" not in page and "&quot; onclick=alert(1)</caption>" in page and "&lt;script&gt;" in page


def test_in_chromium_a_click_on_a_number_and_one_more_lead_to_its_raw_windows(published, tmp_path):
    home = shutil.copytree(published, tmp_path / "site") / "campaigns/smoke"
    for page in home.glob("*-*.html"):
        page.write_text(scripted(page, """
          found.trial = document.querySelector("h1").textContent;
          found.windows = Tabulator.findTable(".tabulator").at(-1).getDataCount();
          const link = document.querySelector('a[href$=".windows.csv"]');
          link.addEventListener("click", (event) => { event.preventDefault(); found.file = decodeURIComponent(link.pathname); });
          link.click()"""), encoding="utf-8")
    found = in_chromium(home / "index.html", "document.querySelector('.tabulator-row .tabulator-cell a').click()")
    raw = (published / "results/smoke/windows.csv").read_text().splitlines()
    reached = Path(found["file"]).read_text().splitlines()
    assert len(reached) - 1 == found["windows"] == sum(line.startswith(found["trial"] + ",") for line in raw) > 20


def test_in_chromium_a_table_sorts_by_keyboard(published):
    found = in_chromium(published / "rows.html", """
      const heading = document.querySelector('.tabulator-col[tabulator-field="c2"] .tabulator-col-content');
      heading.focus();
      found.focused = document.activeElement === heading;
      heading.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      found.sorted = Tabulator.findTable(".tabulator")[0].getSorters().map((sorter) => sorter.field)""")
    assert found == {"focused": True, "sorted": ["c2"]}


@pytest.mark.parametrize("page", ["index.html", "rows.html", "campaigns/smoke/index.html", "campaigns/study.html"])
def test_on_a_phone_no_page_is_wider_than_the_screen(published, page):
    script = "found.page = document.documentElement.scrollWidth; found.screen = window.innerWidth"
    found = in_chromium(published / page, script, width=420)
    assert found["page"] <= found["screen"] <= 500
