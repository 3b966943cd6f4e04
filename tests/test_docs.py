"""The documentation says what the code does: columns, suite keys, examples and links."""

import gzip
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from analysis.compare import memory, verdicts
from analysis.records import pages
from analysis.records.columns import (
    COUNTER_COLUMNS,
    KERNEL_COLUMNS,
    PHASE_COLUMNS,
    PROCESS_COLUMNS,
    WINDOW_COLUMNS,
)
from analysis.trials import summary
from harness.cli import verify
from harness.environments.recipes import Framework
from networks import catalogue
from scripts import docs_hooks

ROOT = Path(__file__).parents[1]
RECORDS = (ROOT / "docs/reference/records.md").read_text(encoding="utf-8")
FILES = ("explain", "explain_details", "bisect", "links", "fits", "predictions", "overlap",
         "what_if", "points", "measurements")


def example(page, language):
    """The first example of a language on a page of how-to/."""
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def columns_of(name):
    """The columns of a file that no constant lists, as it was published."""
    first = min(ROOT.glob(f"results/**/{name}.csv*"))
    opener = gzip.open if first.suffix == ".gz" else open
    with opener(first, "rt", encoding="utf-8") as file:
        return file.readline().strip().split(",")


def undocumented(columns, page=RECORDS):
    """Columns that a page does not name; an interval's ends are said once for all."""
    said = set(re.findall(r"`(\w+)`", page))
    return [name for name in columns if name and re.sub("_(low|high)$", "", name) not in said]


def required(model):
    """The keys that a page or a part of one must have."""
    return [name for name, field in model.model_fields.items() if field.is_required()]


@pytest.mark.parametrize("columns", [
    PROCESS_COLUMNS, WINDOW_COLUMNS, COUNTER_COLUMNS, KERNEL_COLUMNS,
    PHASE_COLUMNS, required(pages.PlannedTrial), required(pages.CampaignPage), summary.COLUMNS, verdicts.COLUMNS,
    memory.COLUMNS,
    verify.COLUMNS,
])
def test_every_column_is_documented(columns):
    assert undocumented(columns) == []


@pytest.mark.parametrize("name", FILES)
def test_every_column_of_what_was_published_is_documented(name):
    assert undocumented(columns_of(name)) == []


def test_a_column_that_the_page_does_not_name_is_found():
    assert undocumented(["trial", "step_seconds_low", "colour"]) == ["colour"]


@pytest.mark.parametrize("model", docs_hooks.SUITE.values(), ids=lambda model: model.__name__)
def test_every_key_of_a_suite_has_a_meaning(model):
    assert [key for key, field in model.model_fields.items() if not field.description] == []


def test_the_command_line_has_every_command_and_no_path_of_this_machine():
    page = docs_hooks.command_line()
    assert "`dlbench study aggregation`" in page and "`dlbench bisect`" in page
    assert str(ROOT) not in page


def test_the_example_of_a_recipe_is_one():
    recipe = Framework.model_validate(yaml.safe_load(example("add-a-framework", "yaml")))
    assert recipe.default in recipe.releases


def test_the_example_of_a_network_is_the_file_that_its_page_names():
    written = (ROOT / "networks/catalogue/lenet.py").read_text(encoding="utf-8")
    assert example("add-a-network", "python").strip() == written.strip()
    page = (ROOT / "docs/how-to/add-a-network.md").read_text(encoding="utf-8")
    assert f"{catalogue.get('lenet5').parameter_count:,} parameters" in page


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_first_pages_lead_to_files(page):
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert links and [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("link, led, lost", [
    ("../../results/h200-gemm-2026-11-21/report.md", "results:campaigns/h200-gemm-2026-11-21.html", 0),
    ("../../results/h200-stock-2026-11-24/report.md",
     "results:campaigns/h200-stock-2026-11-24/index.html", 0),
    ("../../results/h200-stock-2026-11-24/trials.csv", "results:results/h200-stock-2026-11-24/trials.csv", 0),
    ("../../results/README.md", "results:index.html", 0),
    ("../method/timing.md", "../method/timing.md", 0),
    ("../../results/no-campaign/report.md", "../../results/no-campaign/report.md", 1),
    ("../../harness/errors.py", "../../harness/errors.py", 1),
])
def test_links_lead_to_the_site_of_results_and_a_lost_one_is_a_warning(link, led, lost, caplog):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="findings/tuned.md"))
    config = SimpleNamespace(docs_dir=ROOT / "docs")
    found = docs_hooks.on_page_markdown(f"[words]({link}#part)", page, config, None)
    assert (found, len(caplog.records)) == (f"[words]({led}#part)", lost)


def test_results_that_the_site_does_not_show_are_named_without_a_link(monkeypatch):
    monkeypatch.setattr(docs_hooks, "SHOWN", {"h200-gemm-2026-11-21": 1})
    page = SimpleNamespace(file=SimpleNamespace(src_uri="findings/tuned.md"))
    config = SimpleNamespace(docs_dir=ROOT / "docs")
    text = "[An\nH200](../../results/h200-stock-2026-11-24/report.md) ran"
    found = docs_hooks.on_page_markdown(text, page, config, None)
    assert found == "An\nH200 (`results/h200-stock-2026-11-24` in the repository) ran"
