"""Tables and verdicts of the pipelines study from measurements with known answers."""

import pandas as pd
import pytest

from analysis.display.ranking import TOO_FEW
from analysis.records import study_reader
from analysis.studies import kinds, pipelines
from tests.analysis.records.test_study_reader import study

# Seconds a frame. Decoding limits the first, inference the second, and the cores the third.
SECONDS = {
    "decoding": {"decode": 8e-3, "resize": 1e-3, "normalise": 1e-3, "load": 10e-3, "infer": 4e-3, "in_turn": 14e-3, "overlapped": 10.1e-3},
    "answering": {"decode": 1e-3, "resize": 2e-3, "normalise": 1e-3, "load": 4e-3, "infer": 8e-3, "in_turn": 12e-3, "overlapped": 8.1e-3},
    "sharing": {"decode": 8e-3, "resize": 1e-3, "normalise": 1e-3, "load": 10e-3, "infer": 9e-3, "in_turn": 19e-3, "overlapped": 15e-3},
    "gaining": {"decode": 8e-3, "resize": 1e-3, "normalise": 1e-3, "load": 10e-3, "infer": 9e-3, "in_turn": 19e-3, "overlapped": 21e-3}}
ERRORS = {"decode": "frames=8 place=-1 nearest=-1 mean=0.2 max=3 swapped=40", "resize": "mean=0.3 max=1 triangle=0.3", "infer": "mean=1e-06 argmax=0",
          "overlapped": "mean=0.01 argmax=1"}


def recorded(tmp_path, processes=3):
    points = [{"point": f"drawn-{name}-s1", "source": "drawn", "loader": name, "filter": "triangle", "streams": 1, "frames": 8, "batch": 4,
               "network": "resnet8"} for name in SECONDS]
    rows = [(f"drawn-{name}-s1", stage, process, [took * (1 + 0.002 * (-1) ** process)] * 2,
             {"error": 0.1, "errors": ERRORS.get(stage, "mean=0.1")})
            for name, stages in SECONDS.items() for stage, took in stages.items() for process in range(processes)]
    points.append({**points[0], "point": "drawn-wrong-s1", "loader": "wrong"})
    rows += [("drawn-wrong-s1", stage, 0, [], {"status": "different", "reason": "decode: red and blue are exchanged", "error": 40,
                                               "errors": "mean=40 max=90"}) for stage in pipelines.STAGES]
    return study(tmp_path, "pipelines", points, rows, {})


def test_what_limits_a_pipeline_is_named_by_the_rule(tmp_path):
    read = study_reader.read(recorded(tmp_path))
    found = study_reader.estimates(read)
    whole = pipelines.whole_pipelines(read, found[found["status"] == "ok"])
    assert {row["loader"]: row["limit"] for row in whole} == {
        "decoding": "the loader, mostly decode", "answering": "inference",
        "sharing": "shared cores: overlapping hides a part; longest: the loader, mostly decode",
        "gaining": "shared cores: overlapping gains nothing; longest: the loader, mostly decode"}
    assert [row["loader"] for row in whole] == ["answering", "decoding", "sharing", "gaining"]
    table = pipelines.shown(whole).set_index("loader")
    assert table.loc["answering", "overlapped (frames/s)"].startswith("123 (")
    assert "answering for drawn, 123 (" in pipelines.answer(whole)


def test_one_process_names_no_limit(tmp_path):
    read = study_reader.read(recorded(tmp_path, processes=1))
    found = study_reader.estimates(read)
    assert {row["limit"] for row in pipelines.whole_pipelines(read, found[found["status"] == "ok"])} == {TOO_FEW}


def test_the_page_has_pixels_answers_and_refusals_and_a_plot(tmp_path):
    folder = recorded(tmp_path)
    kinds.write(folder, folder)
    page = (folder / "report.md").read_text()
    pixels = pd.read_csv(folder / "tables" / "pixels.csv", keep_default_na=False, dtype=str).set_index("loader")
    assert pixels.loc["decoding", ["decoded", "resized", "engine", "pipeline", "verdict"]].tolist() == [
        "0.200 mean, 3.00 max", "0.300 mean, 1.00 max", "1.0e-06", "1.0e-02", "same"]
    assert pixels.loc["wrong", "verdict"] == "different" and float(pixels.loc["decoding", "other largest answer"]) == 1
    assert "red and blue are exchanged" in page and "the loader, mostly decode" in page
    assert list(folder.glob("**/pipelines.svg"))


@pytest.mark.parametrize("plots", [True, False])
def test_a_study_in_which_nothing_was_measured_says_so(tmp_path, plots):
    folder = recorded(tmp_path)
    table = pd.read_csv(folder / "measurements.csv", dtype=str, keep_default_na=False)
    table.assign(status="unsupported", reason="only on Sundays", seconds="", errors="", error="").to_csv(folder / "measurements.csv", index=False)
    kinds.write(folder, folder, plots=plots)
    page = (folder / "report.md").read_text()
    assert "No pipeline was measured whole." in page and "only on Sundays" in page
