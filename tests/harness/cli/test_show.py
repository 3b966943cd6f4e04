"""`dlbench study show`: a recorded study's page is made again from its records, and from those of its parts."""

import json

import pandas as pd
from typer.testing import CliRunner

from harness.cli.main import app
from harness.studies.conv import gflop, part_of
from harness.studies.recorder import open_study

EFFORT = {"processes": 1, "windows": 1, "window_seconds": 0.01, "once_seconds": 1, "seed": 0}
PAGE = {
    "schema": 1, "study": "conv", "settings": {"batches": {}, "sweep": True}, "effort": EFFORT, "device_kind": "cuda", "threads": 1,
    "started": "now", "finished": "later", "dlbench": "0", "git_commit": None, "source_hash": "0f", "dirty": [], "concerns": [],
    "environments": {}, "machine": {"cpu": {"model": "example"}, "gpus": []},
}


def point(k):
    return {"point": f"k{k}", "n": 16, "c": 4, "h": 10, "w": 10, "k": k, "r": 3, "s": 3, "stride": 1, "padding": 0, "groups": 1,
            "pass": "forward", "math": "fma"}


def record(folder, points):
    records = open_study(folder, {**PAGE, "name": folder.name}, {each["point"]: each for each in points})
    for each in points:
        records.append([{"bench": "pytorch", "process": 0, "point": each["point"], "candidate": name, "status": "ok", "steps": 1,
                         "operations": 1, "seconds": seconds} for name, seconds in (("GEMM", gflop(each)), ("FFT", 1e-3))])
    return folder


def test_the_parts_of_a_sweep_make_one_page(tmp_path):
    points = [point(k) for k in (1, 4, 16, 64)]
    parts = [record(tmp_path / f"part{number}", part_of(points, f"{number}/2")) for number in (1, 2)]
    result = CliRunner().invoke(app, ["study", "show", *map(str, parts), "--out", str(tmp_path / "whole")])
    assert result.exit_code == 0, result.output
    gains = pd.read_csv(tmp_path / "whole" / "tables" / "gains.csv")
    assert sorted(gains["k"]) == [1, 4, 16, 64]
    assert (tmp_path / "whole" / "report.html").exists()
    assert len(pd.read_csv(tmp_path / "whole" / "measurements.csv")) == 8
    again = CliRunner().invoke(app, ["study", "show", str(tmp_path / "whole")])
    assert again.exit_code == 0, again.output
    assert [part["name"] for part in json.loads((tmp_path / "whole" / "study.json").read_text())["parts"]] == ["part1", "part2"]


def test_several_parts_need_a_folder_of_the_whole(tmp_path):
    parts = [record(tmp_path / name, [point(k)]) for name, k in (("a", 1), ("b", 4))]
    result = CliRunner().invoke(app, ["study", "show", *map(str, parts)])
    assert "name the folder of the whole with --out" in str(result.exception)


def test_a_folder_without_a_study_and_one_of_another_kind_are_refused(tmp_path):
    result = CliRunner().invoke(app, ["study", "show", str(tmp_path)])
    assert "study.json: no such file; name a folder that `dlbench study` wrote" in str(result.exception)
    (tmp_path / "study.json").write_text(json.dumps({"study": "aggregation"}))
    result = CliRunner().invoke(app, ["study", "show", str(tmp_path)])
    assert "`dlbench study aggregation --again` makes this page again" in str(result.exception)


def test_parts_of_different_releases_are_not_put_under_one_header(tmp_path):
    parts = [record(tmp_path / name, [point(k)]) for name, k in (("a", 1), ("b", 4))]
    older = parts[1] / "measurements.csv"
    pd.read_csv(older, dtype=str, keep_default_na=False).drop(columns=["errors", "kernels"]).to_csv(older, index=False)
    result = CliRunner().invoke(app, ["study", "show", *map(str, parts), "--out", str(tmp_path / "whole")])
    assert "measurements.csv: the parts have other columns" in str(result.exception)
    assert not (tmp_path / "whole").exists()
