"""`dlbench study layers`: which layers are measured, and that real frameworks' layers equal the reference before they are timed."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import WrongUse
from harness.studies.layers import FRAMEWORKS, LAYERS, known_frameworks, points_of
from runners.studies.layers import reference
from tests.conftest import ABLE
from tests.slow import slow_but


def test_images_have_a_layout_and_the_others_none():
    points = points_of(["max_pool", "ctc"], ["nchw", "nhwc"], ["fp32", "fp16"])
    assert [point["point"] for point in points] == ["max_pool-nchw-fp32", "max_pool-nchw-fp16", "max_pool-nhwc-fp32",
                                                    "max_pool-nhwc-fp16", "ctc-fp32", "ctc-fp16"]


def test_every_layer_of_the_study_has_a_reference():
    assert set(LAYERS) == set(reference.EXACT)


def test_a_framework_without_single_layers_is_refused_with_its_reason():
    with pytest.raises(WrongUse, match="caffe is not in this study: its layers run within a network only"):
        known_frameworks(["pytorch", "caffe"])


def study(tmp_path, framework, interpreter, *words, expected=0):
    folder = tmp_path / "study"
    words = ["study", "layers", "--frameworks", framework, "--device", "cpu", "--threads", "1", "--batch", "2", "--processes", "1",
             "--window-seconds", "0.0001", "--out", str(folder), "--interpreter", f"{framework}={interpreter}", *words]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == expected, result.output
    return pd.read_csv(folder / "measurements.csv", dtype=str, keep_default_na=False)


CHEAP = "max_pool,avg_pool,lp_pool,lrn,dropout,batch_norm,ctc,embedding"  # convolutions and large tables take a minute in all
REFUSALS = {
    "pytorch": set(),
    "tensorflow": {"tf.nn.local_response_normalization normalises over the last axis only"},
    "jax": {"JAX has no CTC loss of its own (optax has one, which is another package)"},
    "mxnet": {"MXNet's LRN normalises over the second axis only"},
    "paddle": set(),
}


# TensorFlow uses oneDNN, which can, where the processor has AVX-512.
NOT_WITHOUT_AVX512 = {"tensorflow": {f"InvalidArgumentError: Default {name}Op only supports NHWC on device type CPU"
                                     for name in ("AvgPooling", "AvgPoolingGrad", "MaxPooling")}}


@pytest.mark.parametrize("framework", slow_but(["mxnet"], FRAMEWORKS))
def test_a_framework_s_layers_equal_the_reference(tmp_path, framework, interpreter_of):
    found = study(tmp_path, framework, interpreter_of(framework), "--layers", CHEAP)
    assert set(found["status"]) <= {"ok", "unsupported"}
    refusals = REFUSALS[framework] | (set() if "avx512bw" in ABLE else NOT_WITHOUT_AVX512.get(framework, set()))
    assert set(found.loc[found["status"] == "unsupported", "reason"]) == refusals
    assert len(found) == 2 * len(points_of(CHEAP.split(","), ["nchw", "nhwc"], ["fp32"]))
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Single layers over the frameworks" in page and "pycaffe times a net, not a layer" in page


def test_a_layer_that_computes_something_else_is_different_and_not_timed(tmp_path, interpreter_of, monkeypatch):
    monkeypatch.setattr("harness.studies.layers.bench_of", lambda name, points, threads: studies_bench(points))
    found = study(tmp_path, "pytorch", interpreter_of("pytorch"), "--layers", "lrn,softmax").set_index(["point", "candidate"])
    wrong = found.loc["lrn-nchw-fp32"]
    assert set(wrong["status"]) == {"different"} and set(wrong["seconds"]) == {""}
    assert set(found.loc["softmax-fp32"]["status"]) == {"ok"}


def studies_bench(points):
    from harness.studies.study import Bench

    return Bench("pytorch", "tests.faults.studies.layers_wrong_lrn", points)
