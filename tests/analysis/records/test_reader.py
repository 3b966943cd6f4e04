"""Reading a campaign: what a killed driver left behind is tolerated, everything else that is wrong is named."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from analysis.records import manifest, packed, reader
from analysis.records.tables import count_rows
from analysis.records.text import BadRecords

TRIAL = "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"


def test_what_was_written_is_read(made, tmp_path):
    campaign = reader.read(made.write(tmp_path))
    assert (len(campaign.processes), len(campaign.windows)) == (len(made.processes), len(made.windows))
    assert campaign.windows["step_seconds"].tolist() == [row["step_seconds"] for row in made.windows]
    assert campaign.processes["gradient_error"].isna().sum() == 8  # only the first process of each trial was checked


def test_a_campaign_without_a_finished_process_is_read(made, tmp_path):
    made.processes, made.windows = [], []
    assert reader.read(made.write(tmp_path)).processes.empty
    (tmp_path / "windows.csv").unlink()
    assert reader.read(tmp_path).windows.empty


def test_an_unfinished_last_line_is_left_out_with_a_warning(made, tmp_path):
    made.write(tmp_path)
    with (tmp_path / "windows.csv").open("a") as file:
        file.write(f"{TRIAL},4,99,8,7")
    with pytest.warns(UserWarning, match="windows.csv: the last line is unfinished"):
        campaign = reader.read(tmp_path)
    assert len(campaign.windows) == len(made.windows)


def test_windows_of_a_process_that_did_not_finish_are_left_out(made, tmp_path):
    gone = made.processes.pop()
    campaign = reader.read(made.write(tmp_path))
    assert gone["process"] not in campaign.windows[campaign.windows["trial"] == gone["trial"]]["process"].tolist()


def test_of_a_process_that_was_killed_and_resumed_only_the_second_attempt_counts(made, tmp_path):
    first = [{**row, "step_seconds": 99.0} for row in made.windows_of(TRIAL) if row["process"] == 0][:10]
    made.windows = first + made.windows
    campaign = reader.read(made.write(tmp_path))
    assert len(campaign.windows) == len(made.windows) - 10
    assert campaign.windows["step_seconds"].max() < 99


def test_a_repeated_process_counts_once(made, tmp_path):
    made.processes.insert(0, {**made.processes[0], "status": "failed", "reason": "crashed"})
    campaign = reader.read(made.write(tmp_path))
    assert (campaign.processes["status"] == "ok").all() and len(campaign.processes) == 10


def test_rows_are_counted_as_csv_has_them(made, tmp_path):
    made.processes[0]["reason"] = "one\ntwo\r\nthree"
    campaign = reader.read(made.write(tmp_path))
    assert (len(campaign.processes), campaign.processes["reason"][0]) == (10, "one\ntwo\r\nthree")
    assert count_rows(tmp_path / "processes.csv") == (10, True)


NESTED = 100_000 * "["
PAGES = {"null": "null", "list": "[]", "binary": b"\xff\xfe\x00", "nested": NESTED, "digits": '{"schema": ' + 6000 * "9" + "}",
         "half": '{"schema": 1, "trials": ['}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_no_campaign_has_is_one_message(made, tmp_path, name):
    text = PAGES[name]
    (made.write(tmp_path) / "campaign.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadRecords, match=r"campaign\.json") as caught:
        reader.read(tmp_path)
    assert len(str(caught.value)) <= 500 and str(caught.value).isprintable()


@pytest.mark.parametrize("file", ["campaign.json", "processes.csv", "windows.csv"])
@pytest.mark.parametrize(("make", "why"), [
    (Path.mkdir, "not a regular file"), (os.mkfifo, "not a regular file"),
    (lambda path: path.symlink_to(path), "symbolic links"), (lambda path: path.symlink_to("/no/file"), "a link to nothing"),
    (lambda path: path.symlink_to("/dev/zero"), "not a regular file")])
def test_what_is_no_file_is_neither_waited_for_nor_read(made, tmp_path, file, make, why):
    made.write(tmp_path)
    (tmp_path / file).unlink()
    make(tmp_path / file)
    with pytest.raises(BadRecords, match=why):
        reader.read(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text.replace("steps", "stop", 1), "two columns 'stop'|no column steps"),
    (lambda text: text + 200_000 * "z" + "\n", "row 162: field larger than field limit"),
    (lambda text: text.replace("\n", "\n,", 1), "row 2 has 11 fields, the header has 10"),
])
def test_a_table_that_csv_cannot_hold_is_named(made, tmp_path, change, message):
    file = made.write(tmp_path) / "windows.csv"
    file.write_text(change(file.read_text()))
    with pytest.raises(BadRecords, match=message):
        reader.read(tmp_path)


@pytest.mark.parametrize("path", [("suite", "prepare_jobs"), ("machine", "cpu"), ("environments",), ("trials", 0, "batch"),
                                  ("trials", 0, "trial"), ("finished",), ("trials",)])
@pytest.mark.parametrize("value", [-1, 10**30, float("nan"), ["x"], 1.5, True])
def test_a_value_that_no_campaign_has_is_named(made, tmp_path, path, value):
    made.write(tmp_path)
    page = json.loads((tmp_path / "campaign.json").read_text())
    place = page
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (tmp_path / "campaign.json").write_text(json.dumps(page))
    with pytest.raises(BadRecords, match=rf"campaign\.json: .*{path[-1]}") as caught:
        reader.read(tmp_path)
    assert len(str(caught.value)) <= 500


def test_a_folder_without_records_is_named(tmp_path):
    with pytest.raises(BadRecords, match=r"campaign\.json: no such file; name a folder that `dlbench run` wrote"):
        reader.read(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"schema": 2}, "schema 2, this dlbench reads 1; use the dlbench that wrote it \\(1.0.0\\)"),
    ({"schema": None}, "schema None"),
    ({"machine": ...}, "no key machine"),
    ({"trials": [{}]}, r"no key trials\[0\].trial"),
])
def test_a_bad_campaign_file_is_refused(made, tmp_path, change, message):
    made.write(tmp_path)
    meta = {key: value for key, value in {**made.meta, **change}.items() if value is not ...}
    (tmp_path / "campaign.json").write_text(json.dumps(meta))
    with pytest.raises(BadRecords, match=message):
        reader.read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_campaign_file_that_is_no_object_is_refused(made, tmp_path, text):
    made.write(tmp_path)
    (tmp_path / "campaign.json").write_text(text)
    with pytest.raises(BadRecords, match=r"campaign.json: .* restore the file from a copy"):
        reader.read(tmp_path)


@pytest.mark.parametrize(("file", "column", "value", "message"), [
    ("windows", "step_seconds", "inf", "windows.csv: column step_seconds, row 4: 'inf' is not a number"),
    ("windows", "step_seconds", "fast", "windows.csv: column step_seconds, row 4: 'fast' is not a number"),
    ("windows", "steps", "", "windows.csv: column steps, row 4: '' is not a whole number"),
    ("windows", "last_step", "1.5", "windows.csv: column last_step, row 4: '1.5' is not a whole number"),
    ("processes", "parameters", "many", "processes.csv: column parameters, row 4: 'many' is not a whole number"),
    ("processes", "trial", "stranger", "processes.csv: column trial: stranger is no trial of campaign.json"),
])
def test_a_bad_cell_is_named(made, tmp_path, file, column, value, message):
    getattr(made, file)[2][column] = value
    with pytest.raises(BadRecords, match=message):
        reader.read(made.write(tmp_path))


def test_a_missing_column_is_named(made, tmp_path):
    made.write(tmp_path)
    text = (tmp_path / "windows.csv").read_text()
    (tmp_path / "windows.csv").write_text(text.replace("last_step", "step", 1))
    with pytest.raises(BadRecords, match=r"windows\.csv: no column last_step"):
        reader.read(tmp_path)


def test_empty_cells_are_not_measured():
    campaign = reader.read(Path(__file__).parents[1] / "recorded" / "h200-fcn5")
    assert len(campaign.kernels) == 99
    assert campaign.kernels["exposed_seconds_per_step"].isna().all()
    assert campaign.processes["copies_error"].isna().all()


def test_a_packed_campaign_is_read_as_a_plain_one_and_can_be_restored(made, tmp_path):
    folder = made.write(tmp_path / "campaign")
    (folder / "logs").mkdir()
    (folder / "logs" / "0.log").write_text("said\n")
    for name in ("report.html", "report.md", "other.html"):
        (folder / name).write_text("a page")
    before, plain = reader.read(folder), contents(folder)
    packed.pack_folder(folder)
    assert {path.name for path in folder.iterdir()} == {
        "SHA256SUMS", "campaign.json", "logs.tar.gz", "other.html", "processes.csv", "report.md",
        "windows.csv.gz"}  # a page goes where its Markdown stays
    assert manifest.check_manifest(folder) == []
    pd.testing.assert_frame_equal(reader.read(folder).windows, before.windows)
    first = contents(folder)
    packed.unpack_folder(folder)
    assert contents(folder) == {name: plain[name] for name in plain if name != "report.html"}
    packed.pack_folder(folder)
    assert contents(folder) == first  # the same bytes


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


def test_a_row_of_the_wrong_length_is_named(made, tmp_path):
    made.write(tmp_path)
    lines = (tmp_path / "processes.csv").read_text().splitlines()
    lines[3] += ",more"
    (tmp_path / "processes.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(BadRecords, match=r"processes\.csv: row 4 has 20 fields, the header has 19; delete that row"):
        reader.read(tmp_path)


def test_packing_changes_nothing_that_lies_deeper_than_a_comparisons_campaigns(draw_records, tmp_path):
    near, deep = tmp_path / "results/one", tmp_path / "results/a/b/c"
    for place in (near, deep):
        draw_records().write(place)
    (deep / "report.html").write_text("page")
    (deep / "report.md").write_text("page")
    before = {file: file.read_bytes() for file in deep.rglob("*") if file.is_file()}
    assert packed.homes_of(tmp_path / "results") == []
    (tmp_path / "results/compare.csv").write_text("a comparison\n")
    assert packed.homes_of(tmp_path / "results") == [near]
    packed.pack_folder(tmp_path / "results")
    assert {file: file.read_bytes() for file in deep.rglob("*") if file.is_file()} == before
    assert (near / "SHA256SUMS").exists()
