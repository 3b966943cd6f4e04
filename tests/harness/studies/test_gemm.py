"""`dlbench study gemm`: which products are measured, and a whole study of a tiny network on this CPU."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import networks
from harness.cli.main import app
from harness.errors import WrongUse
from harness.studies.gemm import batches_of, points_of, tolerance_of
from networks import work


def test_every_product_of_a_network_is_a_point_in_every_precision():
    points = points_of({"tiny_lstm": 4}, ["fp32", "bf16"], None)
    shapes = {(product.m, product.n, product.k) for product in work.matrix_products(networks.get("tiny_lstm"), 4)}
    assert {(p["m"], p["n"], p["k"]) for p in points} == shapes | {(1024, 2048, 26752)}
    assert len(points) == 2 * (len(shapes) + 1) == len({point["point"] for point in points})


def test_large_products_are_left_out():
    assert {point["m"] for point in points_of({}, ["fp32"], 113)} == {1024}
    assert points_of({}, ["fp32"], 112) == []
    assert len(points_of({"tiny_fcn": 4, "vgg16": 32}, ["fp32"], 1e-3, True)) == len(points_of({"tiny_fcn": 4}, ["fp32"], None))


def test_the_batch_is_the_middle_one_unless_given():
    assert batches_of(["fcn5", "tiny_fcn"], None) == {"fcn5": 1024, "tiny_fcn": 4}
    assert batches_of(["fcn5", "none"], 7) == {"fcn5": 7}


def test_the_batch_is_a_campaign_s_where_it_has_the_network(tmp_path):
    campaign = Path(__file__).parents[2] / "analysis" / "recorded" / "h200-fcn5"
    assert batches_of(["fcn5", "tiny_fcn"], None, [campaign]) == {"fcn5": 1024, "tiny_fcn": 4}
    changed = tmp_path / "campaign"
    shutil.copytree(campaign, changed)
    page = changed / "campaign.json"
    page.write_text(page.read_text().replace('"batch": 1024', '"batch": 99'))
    assert batches_of(["fcn5", "tiny_fcn"], None, [changed]) == {"fcn5": 99, "tiny_fcn": 4}
    assert batches_of(["fcn5"], 7, [changed]) == {"fcn5": 7}


def test_unknown_words_are_named():
    with pytest.raises(WrongUse, match="--networks: unknown fcn55; did you mean fcn5"):
        batches_of(["fcn55"], None)
    with pytest.raises(WrongUse, match="--precisions: unknown fp64"):
        points_of({}, ["fp64"], None)


def test_a_tf32_product_does_not_pass_for_fp32():
    assert tolerance_of({"precision": "fp32"}) < 2.0**-13 < tolerance_of({"precision": "tf32"})  # tf32 rounds to 2^-12 at most


def test_a_study_of_a_tiny_network_measures_fp32_and_says_what_a_cpu_has_not(tmp_path, interpreter_of):
    words = ["study", "gemm", "--networks", "tiny_fcn", "--precisions", "fp32,tf32", "--largest", "0.1", "--device", "cpu",
             "--threads", "1", "--processes", "1", "--window-seconds", "0.0001", "--out", str(tmp_path / "study"),
             "--interpreter", f"pytorch={interpreter_of('pytorch')}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "study" / "measurements.csv")
    by_precision = found.groupby(found["point"].str[-4:])["status"].agg(set).to_dict()
    assert by_precision == {"fp32": {"ok"}, "tf32": {"unsupported"}}
    assert set(found["candidate"]) == {"nn", "nt", "tn", "tt", "nt_copied", "tn_copied"}
    assert found.loc[found["status"] == "ok", "error"].max() < 1e-6
    assert json.loads((tmp_path / "study" / "study.json").read_text())["workers"]["pytorch"]["release"]
    steps = pd.read_csv(tmp_path / "study" / "tables" / "products.csv")
    assert len(steps) == 2 * len(work.matrix_products(networks.get("tiny_fcn"), 4))
    assert (steps.loc[steps["precision"] == "fp32", "needed"] > 0).all()
    assert steps.loc[steps["precision"] == "tf32", "needed"].isna().all()
    page = (tmp_path / "study" / "report.html").read_text()
    assert "What transposition costs a mini-batch" in page and "TF32 is a format" in page
    assert "belong to no tier of a framework" in page

    before = (tmp_path / "study" / "measurements.csv").read_text()
    assert CliRunner().invoke(app, words).exit_code != 0  # the folder holds a study already
    assert CliRunner().invoke(app, [*words, "--resume"]).exit_code == 0
    assert (tmp_path / "study" / "measurements.csv").read_text() == before
