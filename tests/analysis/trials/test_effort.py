"""The minimum effort of a published row on a GPU is a remark of the report and of the audit."""

import pytest

from analysis.audit import audit
from analysis.audit.audit import remarks
from analysis.records import manifest, reader
from analysis.report import report
from analysis.trials import effort, summary


@pytest.fixture
def on_gpus(made):
    """A campaign on GPUs that meets the minimum."""
    for trial in made.meta["trials"]:
        trial["device_kind"] = "cuda"
    for row in made.windows:
        factor = max(1, -(-10 // row["steps"])) if row["window"] >= 0 else 1
        row.update(steps=row["steps"] * factor, seconds=0.5)
    made.meta["concerns"] = ["virtual machine: neighbours share caches"]
    return made


def fewer(made):
    made.processes = [row for row in made.processes if row["process"] < 3]


def shorter(made):
    for row in made.windows[: len(made.windows) // 2]:
        row["seconds"] = 0.12


def without_steps(made):
    for row in made.windows:
        row["steps"] = 4 if row["trial"].startswith("pytorch") else row["steps"]


def in_company(made):
    made.meta["concerns"].append("load average 33.6 on 64 processors: others are computing here")


@pytest.mark.parametrize(("change", "said"), [
    (fewer, "2 of 2 rows have 3 processes"),
    (shorter, "1 of 2 rows have 0.12 s a window"),
    (without_steps, "1 of 2 rows have 4 steps a window"),
    (in_company, "load average 33.6 on 64 processors: others are computing here"),
])
def test_what_falls_short_is_said_once(on_gpus, tmp_path, change, said):
    assert effort.remarks(reader.read(on_gpus.write(tmp_path / "enough"))) == []
    change(on_gpus)
    remark, = effort.remarks(reader.read(on_gpus.write(tmp_path / "short")))
    assert remark == (f"Less than the minimum effort of a published GPU row. {effort.RULE} "
                      f"{said[0].upper()}{said[1:]}.")


def test_rows_on_a_cpu_have_no_minimum(made, tmp_path):
    fewer(made)
    in_company(made)
    assert effort.remarks(reader.read(made.write(tmp_path))) == []


def test_the_audit_remarks_what_the_report_says_at_its_head_and_finds_no_fault(on_gpus, tmp_path):
    on_gpus.meta["suite"]["processes"] = 3
    for trial in on_gpus.meta["trials"]:
        trial["processes_planned"] = 3
    fewer(on_gpus)
    folder = on_gpus.write(tmp_path / "campaign")
    summary.rewrite(folder)
    report.write([folder], folder, plots=False)
    manifest.write_manifest(folder)
    remark, = remarks(folder)
    assert (folder / "report.md").read_text().split("\n\n")[2] == remark
    assert "minimum effort" not in str(audit.audit(folder))


def test_a_study_and_records_that_cannot_be_read_have_no_remarks(tmp_path):
    assert remarks(tmp_path) == []
    (tmp_path / "campaign.json").write_text("{")
    assert remarks(tmp_path) == []
