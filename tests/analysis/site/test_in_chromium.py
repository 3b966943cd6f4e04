"""The site in Chromium: tables sort and filter, figures are drawn, and everybody can read it."""

import re
import shutil
from pathlib import Path

import pytest

from tests.analysis.site.browser import in_chromium, scripted, told_by, violations


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



@pytest.mark.parametrize("options", [("--window-size=1440,900",), ("--window-size=500,844", "--blink-settings=preferredColorScheme=0")],
                         ids=["light", "dark-phone"])
@pytest.mark.parametrize("page", ["index.html", "campaigns/smoke/index.html"])
def test_axe_core_finds_nothing_that_shuts_readers_out(published, page, options):
    assert violations(published / page, *options) == []


def test_axe_core_finds_a_planted_fault(published):
    page = published / "planted.html"
    page.write_text(re.sub(r'<label for="q">.*?</label>', "", (published / "index.html").read_text()), encoding="utf-8")
    found = violations(page)
    page.unlink()
    assert found == ["label (critical): #q"]


BOARD = """
  const shown = [...document.querySelectorAll(".board")].filter((board) => !board.hidden);
  found.boards = shown.map((board) => board.dataset.phase);
  found.networks = [...shown[0].querySelectorAll("tbody tr")].filter((row) => row.offsetHeight).map((row) => row.dataset.network)"""


def test_the_leaderboard_shows_the_board_of_its_filters_and_the_address_keeps_them(published):
    found = in_chromium(published / "index.html", f"""
      const filter = document.querySelector("select[name=network]");
      filter.value = "resnet56";
      filter.dispatchEvent(new Event("change", {{ bubbles: true }}));
      {BOARD};
      found.address = window.location.hash""")
    assert (found["boards"], found["networks"]) == (["training step"], ["resnet56"])
    page = published / "index.html"
    again = told_by(scripted(page, BOARD), page, address=found["address"])
    assert again == {"boards": ["training step"], "networks": ["resnet56"]}
    unknown = told_by(scripted(page, BOARD), page, "--window-size=500,844", address="#hardware=abacus&network=resnet56")
    assert unknown == again


def test_the_address_keeps_the_filters_of_all_rows(published):
    filtered = """
      found.networks = [...new Set([...document.querySelectorAll('.tabulator-cell[tabulator-field="c0"]')].map((cell) => cell.textContent))]"""
    found = in_chromium(published / "rows.html", """
      Tabulator.findTable(".tabulator")[0].setHeaderFilterValue("c0", "resnet56");
      found.address = window.location.hash""")
    assert found["address"] == "#network=resnet56"
    page = published / "rows.html"
    assert told_by(scripted(page, filtered), page, address=found["address"]) == {"networks": ["resnet56"]}


def test_a_search_finds_pages_by_all_its_words_and_shows_them_as_text(published):
    page = published / "search.html"
    script = """
      found.links = [...document.querySelectorAll("#results a")].map((link) => link.getAttribute("href"));
      found.count = document.getElementById("count").textContent;
      found.images = document.images.length"""
    found = told_by(scripted(page, script), page, address="?q=bf16+instructions")
    assert "campaigns/smoke/index.html" in found["links"] and found["count"].startswith(f"{len(found['links'])} pages have the words")
    assert "campaigns/older/index.html" not in found["links"]
    nothing = told_by(scripted(page, script), page, address="?q=<img+src=x>")
    assert (nothing["links"], nothing["images"]) == ([], 0) and "“<img src=x>”" in nothing["count"]
