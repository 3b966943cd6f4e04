"""`dlbench study attention`: its settings, planted faults, and each framework's implementations on this CPU."""

import contextlib
import types
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import WrongUse
from harness.studies.attention import (
    DEFAULT,
    Grid,
    fault_of_calls,
    peaks_of,
    points_of,
    tolerance_of,
)
from harness.studies.study import Bench
from tests.conftest import ABLE
from tests.slow import slow_but

GRID = Grid((8, 16), (4, 6), (2, 3), ("no", "yes"), ("bf16", "fp32"), tokens=32)


def test_lengths_and_masks_are_crossed_and_the_rest_is_varied_one_at_a_time():
    points = points_of(replace(GRID, passes=("forward",)))
    assert [point["point"] for point in points] == [
        "b4-t8-h2-d4-unmasked-bf16-forward", "b4-t8-h2-d4-unmasked-fp32-forward", "b4-t8-h3-d4-unmasked-bf16-forward",
        "b4-t8-h2-d6-unmasked-bf16-forward", "b4-t8-h2-d4-causal-bf16-forward", "b2-t16-h2-d4-unmasked-bf16-forward",
        "b2-t16-h2-d4-causal-bf16-forward"]
    assert len(points_of(replace(GRID, full=True))) == 2**6
    assert {point["batch"] for point in points_of(replace(GRID, batch=5))} == {5}


def test_a_gpu_s_first_point_is_that_of_the_question():
    first = points_of(DEFAULT["cuda"])[0]
    assert first["point"] == "b8-t1024-h16-d64-unmasked-bf16-forward"
    assert [point["point"] for point in peaks_of([first], "cuda")] == ["product-8192-bf16", "memory"]


@pytest.mark.parametrize(("kind", "count", "crossed"), [("cuda", 24, 288), ("cpu", 10, 16)])
def test_the_default_settings_vary_the_heads_and_are_few(kind, count, crossed):
    points = points_of(DEFAULT[kind])
    assert len(points) == count and len({point["heads"] for point in points}) == len(DEFAULT[kind].heads) >= 2
    assert len(points_of(replace(DEFAULT[kind], full=True))) == crossed


@pytest.mark.parametrize(("change", "message"), [
    ({"masks": ("maybe",)}, "--causal: unknown maybe"), ({"precisions": ("fp8",)}, "--precisions: unknown fp8"),
    ({"passes": ("forwards",)}, "--passes: unknown forwards; did you mean forward"), ({"passes": ()}, "each list needs a value"),
])
def test_a_word_that_is_none_is_named(change, message):
    with pytest.raises(WrongUse, match=message):
        points_of(replace(GRID, **change))


@pytest.mark.parametrize("given", ["x", "0", "1,,-2", "1.5"])
def test_a_length_that_is_no_number_is_refused(given, tmp_path):
    result = CliRunner().invoke(app, ["study", "attention", "--lengths", given, "--device", "cpu", "--out", str(tmp_path / "x")])
    assert isinstance(result.exception, WrongUse) and "--lengths" in str(result.exception)


def test_tf32_does_not_pass_for_fp32():
    fp32, tf32 = (tolerance_of({"precision": name, "pass": "forward"}) for name in ("fp32", "tf32"))
    assert fp32 < 2.0**-13 < tf32


# From the study on an H200 in results/h200-attention-2026-11-23.
FLASH = ("pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bf .. "
         "its<64, 128, 128, 4, cutlass::bfloat16_t> >, false, false, false, false, true, true, false, false>")
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
EFFICIENT = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
FLEX = "triton_tem_fused_flex_attention_0"
PRODUCTS = ["nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "softmax_warp_forward"]


@pytest.mark.parametrize(("bench", "candidate", "names", "fault"), [
    ("pytorch", "flash", [FLASH], ""),
    ("pytorch", "efficient", [EFFICIENT], ""),
    ("pytorch", "cudnn", [CUDNN, "cudnn::fusion::compute_dot_do_o_specialized<true, 64>"], ""),
    ("pytorch", "flex", [FLEX, "triton_poi_fused_ones_0"], ""),
    ("pytorch", "math", PRODUCTS, ""),
    ("jax", "cudnn", [CUDNN], ""),
    ("jax", "xla", ["gemm_fusion_dot_17", "triton_softmax_"], ""),
    ("tensorflow", "keras", PRODUCTS, ""),
    ("pytorch", "product", [], ""),
    ("pytorch", "flash", PRODUCTS, "it called no kernel of flash's, but nvjet"),
    ("pytorch", "flash", [CUDNN], "it called cudnn_generated_fort_native_sdpa.*, which is cudnn's"),
    ("pytorch", "cudnn", [FLASH], "it called pytorch_flash.*, which is flash's"),
    ("pytorch", "math", [EFFICIENT], "which is efficient's"),
    ("pytorch", "flex", [], "it called no kernel of flex's"),
    ("jax", "cudnn", ["gemm_fusion_dot_17"], "it called no kernel of cudnn's, but gemm_fusion_dot_17"),
    ("jax", "xla", [CUDNN], "which is cudnn's"),
])
def test_names_of_kernels_tell_whose_they_are(bench, candidate, names, fault):
    found = fault_of_calls(bench, candidate, names)
    assert bool(found) == bool(fault)
    assert pd.Series([found]).str.contains(fault).all()


def study(tmp_path, framework, interpreter, *words):
    folder = tmp_path / "study"
    result = CliRunner().invoke(app, [
        "study", "attention", "--frameworks", framework, "--device", "cpu", "--threads", "1", "--lengths", "32", "--heads", "2",
        "--widths", "16", "--batch", "2", "--window-seconds", "0.0001", "--out", str(folder),
        "--interpreter", f"{framework}={interpreter}", *words])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(folder / "measurements.csv", dtype=str, keep_default_na=False)
    return found[found["candidate"] != "all"].set_index(["point", "candidate"]).sort_index()


def test_planted_faults_are_different_and_not_timed(tmp_path, interpreter_of, monkeypatch):
    monkeypatch.setattr("harness.studies.attention.bench_of",
                        lambda name, points, *_: Bench(name, "tests.faults.studies.attention", points))
    found = study(tmp_path, "pytorch", interpreter_of("pytorch"), "--passes", "forward_backward", "--causal", "yes")
    found = found.droplevel("point")
    assert found["status"].to_dict() == {"math": "ok", **dict.fromkeys(("shifted mask", "no scale", "no dk", "flash"), "different")}
    assert (found.drop(index="math")["seconds"] == "").all()
    assert found.loc["no dk", "errors"].split()[2] == "dk=1"
    assert float(found.loc["shifted mask", "error"]) > 0.1 < float(found.loc["no scale", "error"])
    assert found.loc["flash", "reason"].startswith("it called no kernel of flash's, but aten::")
    page = (tmp_path / "study" / "report.md").read_text()
    assert "it called no kernel of flash's" in page


REFUSALS = {
    "pytorch": {"PyTorch offers no kernel 'efficient' for these operands on this device",
                "PyTorch offers no kernel 'cudnn' for these operands on this device",
                "TF32 is a format of NVIDIA's tensor cores; the CPU has none",
                "NotImplementedError: FlexAttention does not support backward on CPU. Please set the input requires_grad to False "
                "or use another device."},
    "jax": {"RuntimeError: cuDNN is not detected.", "TF32 is a format of NVIDIA's tensor cores; the CPU has none"},
    "tensorflow": {"TF32 is a format of NVIDIA's tensor cores; the CPU has none"},
}
NO_BF16 = "oneDNN has no bf16 products for this processor (it needs AVX-512)"
CALLED = {("pytorch", "math"): "aten::_scaled_dot_product_attention_math", ("pytorch", "flash"): "_flash_attention_for_cpu",
          ("pytorch", "flex"): "CompiledFxGraph", ("jax", "xla"): "dot", ("tensorflow", "keras"): "Einsum"}


@pytest.mark.parametrize("framework", slow_but(["jax"], REFUSALS))
def test_each_implementation_equals_the_reference_or_says_why_not(tmp_path, framework, interpreter_of):
    found = study(tmp_path, framework, interpreter_of(framework), "--precisions", "fp32,bf16,tf32", "--causal", "yes")
    assert set(found["status"]) == {"ok", "unsupported"}
    lacking = {NO_BF16} if framework == "pytorch" and "avx512bw" not in ABLE else set()
    assert set(found.loc[found["status"] == "unsupported", "reason"]) == REFUSALS[framework] | lacking
    able = found[found["status"] == "ok"].reset_index()
    attention = able[~able["candidate"].isin(["product", "memory"])]
    assert set(attention["candidate"]) == {name for bench, name in CALLED if bench == framework}
    for candidate, kernels in zip(attention["candidate"], attention["kernels"], strict=True):
        assert CALLED[framework, candidate] in kernels
    both = attention["point"].str.endswith("forward_backward")
    assert (attention["errors"].str.count("=") == both.map({True: 4, False: 1})).all()
    assert attention.loc[attention["point"].str.contains("fp32"), "error"].astype(float).max() < 2e-6
    if framework == "pytorch":
        peaks = able.loc[able["candidate"].isin(["product", "memory"]), "point"]
        assert set(peaks) == {"product-1024-fp32", "memory", *(() if lacking else ["product-1024-bf16"])}


def test_processes_share_the_exact_results(tmp_path, interpreter_of, monkeypatch):
    """A planted result in the folder that they share makes every implementation different, in each process."""
    kept = types.SimpleNamespace(TemporaryDirectory=lambda prefix: contextlib.nullcontext(str(tmp_path)))
    monkeypatch.setattr("harness.cli.studies.study.tempfile", kept)
    np.save(tmp_path / "2-32-2-16-no.npy", np.ones((4, 2, 32, 16)))
    found = study(tmp_path, "jax", interpreter_of("jax"), "--causal", "no,yes", "--passes", "forward", "--processes", "2")
    found = found.reset_index().query("candidate == 'xla'").groupby("point")["status"].agg(list)
    assert found.to_dict() == {"b2-t32-h2-d16-unmasked-fp32-forward": ["different"] * 2,
                               "b2-t32-h2-d16-causal-fp32-forward": ["ok"] * 2}
    assert np.load(tmp_path / "2-32-2-16-yes.npy").shape == (4, 2, 32, 16)
