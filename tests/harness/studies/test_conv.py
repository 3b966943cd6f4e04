"""`dlbench study conv`: the sweep of the paper, its parts, and whole studies of tiny layers on this CPU."""

import itertools

import pandas as pd
import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.cli.studies.study import ConvOptions, measure
from harness.errors import WrongUse
from harness.studies import conv
from harness.studies.conv import gflop, part_of, points_of
from harness.studies.study import Effort, Study


def sweep_points():
    return list(points_of(conv.sweep_layers(None), ["forward"], ["fma"]))


def test_the_sweep_has_the_paper_s_8232_layers():
    points = sweep_points()
    assert len({point["point"] for point in points}) == 8232
    outputs = {(point["r"], point["h"] - point["r"] + 1) for point in points}
    assert outputs == set(itertools.product((3, 5, 7, 9, 11, 13), (1, 2, 4, 8, 16, 32, 64)))


def test_parts_together_are_the_whole_and_share_nothing():
    points = sweep_points()
    parts = [part_of(points, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(point["point"] for part in parts for point in part) == sorted(point["point"] for point in points)
    work = [sum(map(gflop, part)) for part in parts]
    assert max(work) < 1.1 * min(work)


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b"])
def test_a_part_that_is_none_is_refused(part):
    with pytest.raises(WrongUse, match=f"--part {part}: write I/N"):
        part_of([], part)


def test_operations_are_counted_as_a_direct_convolution_needs_them():
    layer = {"n": 2, "c": 6, "h": 9, "w": 9, "k": 4, "r": 3, "s": 3, "stride": 2, "padding": 1, "groups": 2}
    assert gflop(layer) == pytest.approx(2e-9 * 2 * 4 * 5 * 5 * 3 * 9)


def test_a_sample_of_the_sweep_is_the_same_each_time():
    assert conv.sweep_layers(20) == conv.sweep_layers(20)
    assert len(conv.sweep_layers(20)) == 20


def run(tmp_path, interpreter, *words):
    result = CliRunner().invoke(app, ["study", "conv", *words, "--device", "cpu", "--threads", "1", "--window-seconds", "0.0001",
                                      "--out", str(tmp_path / "study"), "--interpreter", f"pytorch={interpreter}"])
    assert result.exit_code == 0, result.output
    return pd.read_csv(tmp_path / "study" / "measurements.csv")


def test_three_algorithms_compute_every_pass_of_a_tiny_network_alike(tmp_path, interpreter_of):
    found = run(tmp_path, interpreter_of("pytorch"), "--networks", "tiny_cnn,tiny_resnet", "--batch", "2")
    assert set(found["candidate"]) == {"oneDNN", "unfold_gemm", "fft", "cuDNN"}
    assert set(found.loc[found["candidate"] == "cuDNN", "reason"]) == {"cuDNN's algorithms compute on NVIDIA's GPUs only"}
    refused = found[(found["status"] != "ok") & (found["candidate"] != "cuDNN")]
    assert set(refused["reason"]) == {"convolution by FFT needs stride 1 and one group"}
    assert all("st2" in point for point in refused["point"])
    assert found["error"].max() < 1e-5
    layers = pd.read_csv(tmp_path / "study" / "tables" / "layers_tiny_resnet.csv")
    assert set(layers["pass"]) == {"forward", "backward data", "backward filter"}


def test_tf32_on_a_cpu_is_unsupported_and_not_fp32_by_another_name(tmp_path, interpreter_of):
    found = run(tmp_path, interpreter_of("pytorch"), "--networks", "tiny_cnn", "--batch", "2", "--math", "tf32")
    assert found[["candidate", "status", "reason"]].drop_duplicates().values.tolist() == [
        ["all", "unsupported", "TF32 is a format of NVIDIA's tensor cores; the CPU has none"]]


def test_a_sample_of_the_sweep_has_its_table_and_maps(tmp_path, interpreter_of):
    found = run(tmp_path, interpreter_of("pytorch"), "--sweep", "--sample", "30", "--largest", "0.02", "--passes", "forward")
    assert set(found.loc[found["candidate"] != "cuDNN", "status"]) == {"ok"}
    table = pd.read_csv(tmp_path / "study" / "tables" / "sweep.csv", dtype=str)
    assert set(table["kernel"]) <= {f"{size} x {size}" for size in conv.SWEEP["r"]}
    assert (tmp_path / "study" / "plots" / "sweep_forward_fma.svg").exists()


def test_tf32_does_not_pass_for_fma_but_winograds_transforms_may_lose_digits():
    tf32_error, winograd_error = 2.9e-4, 2.6e-3  # found on an H200
    fma, tf32 = ({"math": math} for math in ("fma", "tf32"))
    assert conv.tolerance_of(fma, "IMPLICIT_PRECOMP_GEMM") < tf32_error < conv.tolerance_of(tf32, "GEMM")
    assert winograd_error < conv.tolerance_of(fma, "WINOGRAD_NONFUSED")


def test_a_study_without_a_layer_is_refused_before_it_writes(tmp_path):
    study = Study("conv", [conv.bench_of([], "cpu")], Effort(1), {}, conv.tolerance_of)
    with pytest.raises(WrongUse, match="no convolutions are left to time: --largest leaves all of them out; name a larger"):
        measure(study, None, ConvOptions(out=tmp_path / "out"), "convolutions")
    assert not (tmp_path / "out").exists()
