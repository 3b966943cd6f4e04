"""`dlbench study pipelines`: its points, and loaders that are refused for what they do to pixels."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import WrongUse
from harness.studies import media, pipelines
from harness.studies.pipelines import Grid, Loader, points_of
from harness.studies.pipelines_judge import Preparation
from harness.workers.failures import Failed
from tests.slow import slow_but

GRID = Grid("resnet8", ("pillow", "opencv", "pyav"), images="drawn", frames=8, batch=4, streams=(1, 2))
FAULTS = {
    "swapped": "decode: red and blue are exchanged",
    "dropped": "decode: frame 2 shows the reference's 3",
    "short": "decode: 4 of 8 frames came",
    "exchanged": "decode: frame 0 shows the reference's 4",
    "undeclared": r"resize: pixels are off those of the filter that it declares \(triangle\) by .*; they are those of area \(mean 0\.",
    "twice": "normalise: values are off by up to .*; they are normalised twice",
    "stale": "overlapped: answers are off by .* of how they differ between frames",
}


def test_a_point_is_a_source_a_loader_and_its_streams():
    points = points_of(GRID)
    assert [point["point"] for point in points] == [
        "drawn-pillow-s1", "drawn-opencv-s1", "video-opencv-s1", "video-opencv-s2", "video-pyav-s1", "video-pyav-s2"]
    assert {point["filter"] for point in points if point["loader"] == "opencv"} == {"area"}
    assert pipelines.frameworks_of(points) == ["pytorch_media"]


def test_loaders_that_must_be_asked_for_are_measured_only_then():
    assert "torchcodec" not in pipelines.chosen([]) and pipelines.chosen(["torchcodec"]) == ["torchcodec"]


@pytest.mark.parametrize(("words", "message"), [
    (["--loaders", "pilow"], "--loaders: unknown pilow; did you mean pillow"),
    (["--sources", "png"], "--sources: unknown png"),
    (["--images", "mine"], "--images: unknown mine"),
    (["--network", "tiny_fcn"], "--network tiny_fcn: it takes .*, not colour images"),
    (["--frames", "10", "--batch", "4"], "--frames 10 --batch 4: whole batches only; write --frames 8"),
    (["--size", "320"], "--size 320: write width and height"),
    (["--size", "33x48"], "--size: H.264 halves chroma"),
    (["--streams", "0"], "--streams 0: write whole numbers"),
    (["--loaders", "pyav", "--sources", "jpeg"], "none of pyav reads jpeg"),
])
def test_what_cannot_be_is_named(words, message, tmp_path):
    result = CliRunner().invoke(app, ["study", "pipelines", "--images", "drawn", "--device", "cpu", "--out", str(tmp_path / "x"), *words])
    assert isinstance(result.exception, WrongUse)
    assert pd.Series([str(result.exception)]).str.contains(message).all(), str(result.exception)


def test_a_data_set_that_is_absent_is_named_and_auto_draws(monkeypatch, tmp_path):
    monkeypatch.setenv("DLBENCH_DATA", str(tmp_path))
    with pytest.raises(WrongUse, match="--images cifar10-jpeg: it is not here; set DLBENCH_DATA"):
        media.images_here("cifar10-jpeg")
    assert media.images_here("auto") == "drawn"


def test_a_missing_library_is_named_with_its_remedy():
    with pytest.raises(WrongUse, match=r"pip install -e '\.\[media\]'"):
        media.library("no_such_library")


def test_drawn_images_are_the_same_each_time(tmp_path):
    first, second = (media.described(media.write("drawn", tmp_path / str(time), 4, (32, 16))) for time in (0, 1))
    assert first == second


@pytest.mark.parametrize("source", ["drawn", "video"])
def test_files_hold_the_drawn_frames_in_order_and_each_differs_from_its_neighbours(source, tmp_path):
    frames = media.decoded(media.write(source, tmp_path / source, 4, (32, 16))).astype(float)
    drawn = np.stack([media.drawn(number, 32, 16) for number in range(4)]).astype(float)
    distances = np.abs(frames[:, None] - drawn[None]).mean(axis=(2, 3, 4))
    assert frames.shape == drawn.shape
    assert (distances.argmin(axis=1) == np.arange(4)).all()
    assert np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3)).min() > 4


def study(tmp_path, *words):
    folder = tmp_path / "study"
    result = CliRunner().invoke(app, [
        "study", "pipelines", "--device", "cpu", "--threads", "1", "--images", "drawn", "--network", "tiny_resnet", "--frames", "8",
        "--batch", "4", "--size", "64x48", "--processes", "1", "--window-seconds", "0.0001", "--streams", "1", "--out", str(folder), *words],
        catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return pd.read_csv(folder / "measurements.csv", dtype=str, keep_default_na=False)


def test_a_planted_fault_refuses_all_of_its_loader_and_is_named(tmp_path, stand_in, monkeypatch):
    stand_in(numpy="engines:Good")
    video = ("pyav", "dropped", "short", "exchanged")
    monkeypatch.setattr(pipelines, "LOADERS", {name: Loader("numpy", ("video" if name in video else "jpeg",))
                                               for name in ("pillow", "pyav", "absent", *FAULTS)})
    monkeypatch.setattr(pipelines, "MODULES", {"numpy": "tests.faults.studies.pipelines"})
    found = study(tmp_path)
    found = found.assign(loader=found["point"].str.split("-").str[1])
    assert found.groupby("loader").size().to_dict() == dict.fromkeys(pipelines.LOADERS, 7)
    right = found[found["loader"].isin(["pillow", "pyav"])]
    assert set(right["status"]) == {"ok"} and (right["seconds"] != "").all()
    absent = found[found["loader"] == "absent"]
    assert set(absent["status"]) == {"unsupported"}
    assert set(absent["reason"]) == {"import no_such_decoder: ModuleNotFoundError: No module named 'no_such_decoder'"}
    for name, reason in FAULTS.items():
        rows = found[found["loader"] == name]
        assert set(rows["status"]) == {"different"}, name
        assert rows["reason"].str.match(reason).all(), rows["reason"].iloc[0]
        assert (rows["seconds"] == "").all()
    page = (tmp_path / "study" / "report.md").read_text()
    assert "red and blue are exchanged" in page and "From images and video to answers" in page


@pytest.mark.parametrize("errors", [None, "", "mean", "mean=0 twice=no", "mean=0"])
def test_errors_that_cannot_be_read_are_a_failure_of_the_point(tmp_path, errors):
    preparation = Preparation(GRID, [], tmp_path)
    with pytest.raises(Failed, match=r"^protocol: answer to 'place': decode: errors: came '"):
        preparation.faults({"point": "a", "frames": 8}, {"decode": {"status": "ok", "errors": errors}})


def test_a_dry_run_prints_the_points_and_starts_nothing(tmp_path):
    result = CliRunner().invoke(app, ["study", "pipelines", "--images", "drawn", "--device", "cpu", "--dry-run", "--loaders", "pillow,pyav",
                                      "--out", str(tmp_path / "x")])
    assert result.exit_code == 0 and "loader=pyav" in result.output and "4 points in 3 processes" in result.output
    assert not (tmp_path / "x").exists()


REFUSED = {"torchcodec": "unsupported", "pynvvideocodec": "unsupported", "tensorflow_default": "different"}


@pytest.mark.parametrize("framework", slow_but(["tensorflow"], ["pytorch_media", "tensorflow", "onnxruntime_dali"]))
def test_each_loader_here_equals_the_reference_or_says_why_not(tmp_path, framework, interpreter_of):
    loaders = [name for name, loader in pipelines.LOADERS.items() if loader.framework == framework]
    found = study(tmp_path, "--loaders", ",".join(loaders), "--streams", "1,2", "--interpreter", f"{framework}={interpreter_of(framework)}")
    found = found.assign(loader=found["point"].str.split("-").str[1])
    if (found.loc[found["loader"] == "torchcodec", "status"] == "ok").all():
        # FFmpeg's shared libraries are on this machine.
        found = found[found["loader"] != "torchcodec"]
    refused = found[found["status"] != "ok"]
    assert dict(zip(refused["loader"], refused["status"], strict=True)) == {
        name: status for name, status in REFUSED.items() if name in set(found["loader"])}
    if framework == "tensorflow":
        assert refused["reason"].str.match("decode: pixels are off the reference's by mean").all()
    whole = found[(found["candidate"] == "overlapped") & (found["status"] == "ok")]
    assert len(whole) and whole["errors"].str.contains("argmax=0").all()
