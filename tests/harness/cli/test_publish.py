"""`dlbench publish` writes nothing before every campaign's audit holds, and never into a folder that is something else."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.site import writer
from harness.cli.main import app
from harness.errors import WrongUse
from tests.slow import slow

RECORDED = Path(__file__).parents[3] / "results" / "h200x2-traced-2026-11-22"
# One stopped after a process or two of each row, the other after three.
EARLY, LATE = (RECORDED.with_name(name) for name in ("h200x2-model-parallel-2026-11-26", "h100x4-scaling-tuned-2026-11-28"))


# Folders of each kind, with frameworks, strategies and columns that records made for a test may not have.
KINDS = (
    "bisect-jax-0.10.2-cpu-2026-11-21", "calibration-jax-0.10.2-cpu-2026-11-21", "compare-jax-0.9.2-0.10.2-cpu-2026-11-21",
    "cpu-accuracy-2026-11-24", "cpu-inference-resnet50-2026-11-25", "cpu-links-2026-11-21", "cpu-strategies-2026-11-21",
    "h200-convolutions-2026-11-21", "h200-stock-2026-11-24", "h200-gemm-2026-11-21", "h200-layers-2026-11-21",
    "h200-stock-explained-2026-11-24", "h200-reference-ratio-lstm32-2026-11-29", "proof-h200-2026-11-25",
    "verify-2026-11-21", LATE.name)


@pytest.fixture
def results(tmp_path) -> Path:
    return shutil.copytree(RECORDED, tmp_path / "results" / "h200").parent


def publish(results: Path, out: Path):
    return CliRunner().invoke(app, ["publish", "--results", str(results), "--out", str(out)])


def test_an_audited_campaign_is_published_beside_the_documentation_and_again_in_its_place(results, tmp_path):
    (tmp_path / "site/docs").mkdir(parents=True)
    (tmp_path / "site/docs/index.html").write_text("built before")
    for _ in range(2):
        done = publish(results, tmp_path / "site")
        assert done.exit_code == 0, done.output
    assert "h200: all holds" in done.output
    assert (tmp_path / "site/docs/index.html").read_text() == "built before"
    assert "<dt>audit</dt><dd>all holds;" in (tmp_path / "site/campaigns/h200/index.html").read_text()


def test_a_campaign_that_stopped_earlier_is_not_published(results, tmp_path):
    shutil.copytree(EARLY, results / "stopped")
    done = publish(results, tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert "stopped: not published: unfinished" in done.output
    assert not (tmp_path / "site/campaigns/stopped").exists()
    (results / "published.txt").write_text("h200\nstopped  # soon\n")
    refused = publish(results, tmp_path / "site")
    assert "published.txt: line 2: stopped: unfinished" in str(refused.exception)
    shutil.rmtree(results / "h200")
    (results / "published.txt").unlink()
    assert "holds nothing that can be published" in str(publish(results, tmp_path / "site").exception)


@slow
def test_a_folder_of_each_kind_is_published_also_one_that_stopped_after_three_processes_of_each_row(tmp_path):
    for name in KINDS:
        shutil.copytree(RECORDED.with_name(name), tmp_path / "results" / name)
    done = publish(tmp_path / "results", tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "site/results").iterdir()} == set(KINDS)
    page = (tmp_path / "site/campaigns" / LATE.name / "index.html").read_text()
    assert "<dt>audit</dt><dd>all holds, but it stopped early;" in page
    assert "Not finished: 80 of 130 processes have run." in page
    assert "3 processes a row" in (tmp_path / "site/index.html").read_text()


def test_each_listed_folder_is_there():
    lines = RECORDED.with_name("published.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    assert sorted(name for name in listed if not RECORDED.with_name(name).is_dir()) == []
    assert set(KINDS) < listed


def test_only_the_folders_of_the_list_are_published(results, tmp_path):
    shutil.copytree(results / "h200", results / "scratch")
    (results / "published.txt").write_text("# shown\nh200\n")
    done = publish(results, tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert "scratch: not published: not listed" in done.output
    assert [path.name for path in (tmp_path / "site/results").iterdir()] == ["h200"]
    assert "scratch" not in (tmp_path / "site/index.html").read_text()


def test_a_site_with_a_broken_link_is_not_published(results, tmp_path, monkeypatch):
    write = writer.Site.write
    monkeypatch.setattr(writer.Site, "write", lambda self, name, template, title, **values: write(
        self, name, template, title, **values) if name != "releases.html" else None)
    done = publish(results, tmp_path / "site")
    assert done.exit_code == 1
    assert "index.html: broken link: releases.html" in done.output
    assert not (tmp_path / "site").exists()


def test_a_campaign_that_does_not_hold_is_not_published(results, tmp_path):
    file = results / "h200/trials.csv"
    file.write_text(file.read_text().replace("fcn5", "fcn8", 1))
    done = publish(results, tmp_path / "site")
    assert done.exit_code == 1
    assert "findings; dlbench audit" in done.output
    assert not (tmp_path / "site").exists()


def test_results_without_a_campaign_have_a_site_too(tmp_path):
    study = RECORDED.parent / "h200-layers-2026-11-21"
    shutil.copytree(study, tmp_path / "results" / "layers")
    done = publish(tmp_path / "results", tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "site/index.html").exists()


def test_a_folder_that_is_no_site_is_left_alone(results, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/assets").write_text("mine")
    assert isinstance(publish(results, tmp_path / "mine").exception, WrongUse)
    assert (tmp_path / "mine/assets").read_text() == "mine"


def test_a_site_that_cannot_be_written_leaves_the_old_one(results, tmp_path, monkeypatch):
    assert publish(results, tmp_path / "site").exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file()}

    def fail(self, name: str, *rest, **values):
        raise KeyError(name)

    monkeypatch.setattr(writer.Site, "write", fail)
    assert isinstance(publish(results, tmp_path / "site").exception, KeyError)
    assert {path: path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


@pytest.mark.parametrize("words", [["--out", "site"], ["--index"]])
def test_there_is_no_site_of_nothing(tmp_path, words):
    (tmp_path / "results").mkdir()
    done = CliRunner().invoke(app, ["publish", "--results", str(tmp_path / "results"), *words])
    assert isinstance(done.exception, WrongUse)
    assert "holds no campaign, study or comparison" in str(done.exception)


def test_the_index_replaces_its_own_page_and_no_other(results):
    words = ["publish", "--results", str(results), "--index"]
    (results / "README.md").write_text("my notes\n")
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, WrongUse) and "dlbench did not write it" in str(refused.exception)
    assert (results / "README.md").read_text() == "my notes\n"
    (results / "README.md").unlink()
    for _ in range(2):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert "[h200](h200" in (results / "README.md").read_text()


def test_a_comparison_of_recorded_campaigns_is_published(results, tmp_path):
    done = CliRunner().invoke(app, ["compare", str(results / "h200"), str(results / "h200"), "--out", str(results / "compare-h200")])
    assert (results / "compare-h200" / "compare.csv").exists(), done.output
    done = publish(results, tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert "compare-h200" in (tmp_path / "site/releases.html").read_text()
