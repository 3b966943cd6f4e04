"""Tables of the GEMM and convolution studies from synthetic measurements whose answers are known."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

import networks
from analysis.audit import audit
from analysis.records import packed, reader, study_reader
from analysis.records.columns import TABLES
from analysis.records.text import BadRecords
from analysis.studies import conv, fft_sweep, kinds
from analysis.studies import gemm as gemm_study
from analysis.traces.convolution_kernels import Family, family
from networks import work


def traced(folder, trials, kernels):
    """A campaign that holds nothing but a trace."""
    tables = {name: pd.DataFrame(columns=list(kinds)) for name, kinds in TABLES.items()} | {"kernels": kernels}
    return reader.Campaign(folder, {"trials": trials}, **tables, proves_each_process=True, tells_settings=True)


def study(tmp_path, name, points, rows, settings):
    """A study's folder: `rows` are (point, candidate, process, seconds, other columns)."""
    effort = {"processes": 3, "windows": 2, "window_seconds": 0.01, "once_seconds": 1.0, "seed": 0}
    meta = {"schema": 1, "study": name, "settings": settings, "effort": effort, "device_kind": "cuda", "threads": 1,
            "started": "now", "finished": "later", "dlbench": "0", "git_commit": "abc", "source_hash": "0f", "dirty": [],
            "concerns": [], "workers": {}, "environments": {}, "machine": {"cpu": {"model": "example"}, "gpus": []}}
    (tmp_path / "study.json").write_text(json.dumps(meta))
    pd.DataFrame(points).to_csv(tmp_path / "points.csv", index=False)
    table = [{"bench": "pytorch", "point": point, "candidate": candidate, "process": process, "status": "ok", "steps": 1,
              "seconds": " ".join(map(str, seconds)), "operations": 1, **other}
             for point, candidate, process, seconds, other in rows]
    pd.DataFrame(table, columns=list(study_reader.MEASUREMENT_COLUMNS)).to_csv(tmp_path / "measurements.csv", index=False)
    return tmp_path


SECONDS = {"nn": 1.0, "nt": 1.5, "tn": 0.5, "tt": 3.0, "nt_copied": 2.0, "tn_copied": 2.0}


@pytest.fixture
def gemm(tmp_path):
    """Every product of a tiny network and the article's: NT takes 1.5 times NN, TN half of it, in three processes."""
    shapes = {(1024, 2048, 26752), *((p.m, p.n, p.k) for p in work.matrix_products(networks.get("tiny_fcn"), 4))}
    points = [{"point": f"{m}x{n}x{k}-fp32", "m": m, "n": n, "k": k, "precision": "fp32"} for m, n, k in sorted(shapes)]
    rows = [(point["point"], name, process, [seconds * (1 + 0.01 * process)] * 2, {"error": 1e-7})
            for point in points for name, seconds in SECONDS.items() for process in range(3)]
    return study(tmp_path, "gemm", points, rows, {"batches": {"tiny_fcn": 4}})


def test_the_article_s_ratio_has_its_interval(gemm):
    read = study_reader.read(gemm)
    table = gemm_study.article(read, study_reader.estimates(read))
    here = table[table["where"] == "here"].iloc[0]
    assert here["NT / NN"].startswith("1.50 (")
    assert (here["nn (s)"], here["nt copied (s)"], here["copied / NT"], here["fastest"]) == ("1.01", "2.02", "1.33", "tn")
    assert list(table["where"]) == ["arXiv 1608.07249 (2016)", "other readings", "here"]


@pytest.mark.parametrize(("key", "named"), [
    ("effort", "no key effort"), ("device_kind", "no key device_kind"), ("settings", "no key settings.batches")])
def test_a_page_without_a_key_is_named_with_a_remedy(gemm, key, named):
    page = gemm / "study.json"
    page.write_text(json.dumps({name: value for name, value in json.loads(page.read_text()).items() if name != key}))
    with pytest.raises(BadRecords, match=rf"study\.json: {named}; restore the file from a copy or run"):
        kinds.write(gemm, gemm)


def test_what_transposition_costs_a_step_adds_up(gemm):
    steps = gemm_study.per_product(study_reader.estimates(study_reader.read(gemm)), {"tiny_fcn": 4})
    layouts = steps["layout"].value_counts().to_dict()
    assert layouts == {"NT": 4, "TN": 4, "NN": 3}
    (row,) = gemm_study.by_network(steps).to_dict("records")
    needed, plain = 4 * 1.5 + 4 * 0.5 + 3 * 1.0, 11.0
    assert (row["as needed"], row["all NN"], row["best"]) == ("11.1 s", "11.1 s", "5.55 s")  # each 1.01 times: the middle process
    assert row["cost of transposition"] == f"{100 * (needed / plain - 1):.1f} %"
    assert row["the best would save"] == "50.0 %"


def test_letters_of_a_row_major_product_change_places():
    assert [gemm_study.blas_letters(layout) for layout in ("NT", "TN", "NN", "TT")] == ["tn", "nt", "nn", "tt"]


def test_kernels_of_a_campaign_are_counted_beside_what_the_network_needs(tmp_path):
    trial = {"trial": "a", "framework": "jax", "network": "tiny_fcn", "batch": 4, "precision": "fp32", "tuning": "stock"}
    kernels = pd.DataFrame([{"trial": "a", "class": "matrix product", "transposition": letters, "count_per_step": count,
                             "seconds_per_step": 1e-3} for letters, count in (("tn", 4.0), ("nn", 6.0), ("", 1.0))])
    (row,) = gemm_study.calls(traced(tmp_path, [trial], kernels)).to_dict("records")
    assert row["needed"] == "3 nn, 4 nt, 4 tn"
    assert row["called in a mini-batch"] == "6 nn, 1 not said, 4 tn"
    assert row["time (ms)"] == "3.00"


def test_an_audit_of_a_study_finds_what_was_changed(gemm):
    kinds.write(gemm, gemm)
    assert audit.audit(gemm) == []
    table = gemm / "tables" / "networks.csv"
    table.write_text(table.read_text().replace("5.55 s", "5.54 s"))
    assert {each.column for each in audit.audit(gemm) if each.file == "tables/networks.csv"} == {"", "best"}


def test_large_tables_are_gzipped_and_read_audited_and_linked_as_before(gemm, monkeypatch):
    before = study_reader.estimates(study_reader.read(gemm))
    monkeypatch.setattr(packed, "LARGE_BYTES", 500)
    for _ in range(2):  # the second time from packed records
        page = kinds.write(gemm, gemm).read_text()
    names = {path.name for path in gemm.rglob("*.gz")}
    assert names >= {"measurements.csv.gz", "products.csv.gz"} and not (gemm / "measurements.csv").exists()
    assert 'href="measurements.csv.gz"' in page and 'href="tables/products.csv.gz"' in page
    pd.testing.assert_frame_equal(study_reader.estimates(study_reader.read(gemm)), before)
    assert audit.audit(gemm) == []
    table = gemm / "tables" / "products.csv.gz"
    table.write_bytes(gzip.compress(gzip.decompress(table.read_bytes()).replace(b"NT", b"TT", 1)))
    assert [each.file for each in audit.audit(gemm)] == ["tables/products.csv.gz", "tables/products.csv"]  # its hash, and a cell


def test_a_gzipped_table_is_unpacked_for_whoever_appends(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "LARGE_BYTES", 5)
    file = tmp_path / "measurements.csv"
    file.write_text("a,b\n1,2\n")
    assert packed.pack(file) == packed.find(file) == tmp_path / "measurements.csv.gz"
    packed.unpack(file)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"measurements.csv": "a,b\n1,2\n"}
    monkeypatch.setattr(packed, "LARGE_BYTES", 500)
    assert packed.pack(file) == file


@pytest.mark.parametrize(("column", "value"), [("status", "fine"), ("seconds", ""), ("seconds", "-1 1"), ("point", "1x1x1-fp32"),
                                               ("candidate", "nt")])
def test_raw_rows_that_cannot_be_are_found(gemm, column, value):
    assert study_reader.faults(study_reader.read(gemm)) == []
    table = pd.read_csv(gemm / "measurements.csv", dtype=str, keep_default_na=False)
    table.loc[0, column] = value
    table.to_csv(gemm / "measurements.csv", index=False)
    assert {fault[2] for fault in study_reader.faults(study_reader.read(gemm))} >= {"point" if column == "candidate" else column}


def test_a_whole_gemm_page_is_written_and_hashed(gemm):
    page = kinds.write(gemm, gemm)
    assert "2016 and here" in page.read_text()
    assert (gemm / "SHA256SUMS").exists() and (gemm / "plots" / "ratios.svg").exists()


ALGORITHMS = pd.DataFrame([
    {"candidate": "A", "status": "ok", "seconds": 3.0, "workspace_bytes": 0.0, "rank": 2.0},
    {"candidate": "B", "status": "ok", "seconds": 2.0, "workspace_bytes": 8.0 * 2**20, "rank": 0.0},
    {"candidate": "C", "status": "ok", "seconds": 1.0, "workspace_bytes": 9.0 * 2**20, "rank": 1.0},
    {"candidate": "D", "status": "different", "seconds": np.nan, "workspace_bytes": 0.0, "rank": np.nan},
])


def test_a_strategy_picks_the_fastest_that_it_may():
    assert conv.strategies(ALGORITHMS) == {"fastest": 1.0, "within 8 MiB": 2.0, "no workspace": 3.0, "library's first": 2.0}


def test_a_strategy_without_an_answer_is_not_a_number():
    found = conv.strategies(ALGORITHMS[ALGORITHMS["candidate"] == "C"])
    assert found["fastest"] == 1.0 and np.isnan(found["within 8 MiB"]) and np.isnan(found["no workspace"])


def test_what_the_best_would_save_is_told_where_network_batch_and_arithmetic_are_those_of_the_study(tmp_path):
    layers = pd.DataFrame([{"network": "alexnet", "batch": 64, "math": "fma", "fastest": seconds} for seconds in (1e-3, 2e-3)])
    said = {"jax": (64, "fp32"), "mxnet": (128, "fp32"), "paddle": (64, "bf16"), "caffe": (64, "fp32")}
    trials = [{"trial": name, "framework": name, "network": "alexnet", "batch": batch, "precision": precision, "tuning": "stock"}
              for name, (batch, precision) in said.items()]
    kernel = {"class": "convolution", "kernel": "wgrad2d_grouped_direct_kernel", "count_per_step": 2.0, "seconds_per_step": 4e-3}
    kernels = pd.DataFrame([{"trial": name, **kernel} for name in ("jax", "mxnet", "paddle")])  # caffe was not traced
    campaign = traced(tmp_path, trials, kernels)
    row, other_batch = conv.savings(campaign, layers).to_dict("records")
    assert (row["framework"], row["convolutions (ms)"], row["fastest algorithms (ms)"]) == ("jax", "4.00", "3.00")
    assert row["the best would save"] == "25.0 %"
    assert (other_batch["framework"], other_batch["fastest algorithms (ms)"], other_batch["the best would save"]) == (
        "mxnet", "", "not compared: the study has batch 64")
    first = conv.chosen(campaign).iloc[0]
    assert (first["framework"], first["algorithm"], first["pass"], first["kernels in a mini-batch"]) == (
        "jax", "DIRECT", "backward filter", "2")


def sweep_point(n, c, k, r, y):
    return {"point": f"{n}-{c}-{k}-{r}-{y}", "n": n, "c": c, "h": y + r - 1, "w": y + r - 1, "k": k, "r": r, "s": r, "stride": 1,
            "padding": 0, "groups": 1, "pass": "forward", "math": "fma"}


@pytest.fixture
def swept(tmp_path):
    points = [sweep_point(64, 16, 16, 3, 8), sweep_point(128, 96, 96, 13, 32), sweep_point(1, 1, 1, 13, 1)]
    times = {0: {"GEMM": 2e-3, "FFT": 4e-3, "FFT_TILING": 5e-3}, 1: {"GEMM": 30e-3, "DIRECT": 24e-3, "FFT_TILING": 1e-3},
             2: {"GEMM": 1e-6}}
    rows = [(points[number]["point"], name, 0, [seconds], {"error": 1e-6, "workspace_bytes": 2**20})
            for number, some in times.items() for name, seconds in some.items()]
    return study(tmp_path, "conv", points, rows, {"batches": {}, "sweep": True})


def test_what_was_not_measured_for_one_reason_is_one_row():
    rows = [("p1", "nn", "unsupported", "no TF32"), ("p1", "nt", "unsupported", "no TF32"), ("p2", "nn", "unsupported", "no TF32"),
            ("p2", "tt", "failed", "crashed"), ("p1", "tt", "ok", "")]
    found = pd.DataFrame(rows, columns=["point", "candidate", "status", "reason"]).assign(bench="pytorch")
    assert study_reader.refused(found).values.tolist() == [["pytorch", "unsupported", "no TF32", "nn, nt", 2, "p1"],
                                                      ["pytorch", "failed", "crashed", "tt", 1, "p2"]]


def test_what_failed_or_is_wrong_is_counted_with_its_first_reason():
    rows = [("FFT", "different", "relative error 0.5"), ("FFT", "different", "relative error 0.6"), ("GEMM", "ok", ""),
            ("DIRECT", "unsupported", "3000"), ("GEMM", "failed", "timed_out")]
    found = pd.DataFrame(rows, columns=["candidate", "status", "reason"]).assign(**{"pass": "backward_data", "math": "fma"})
    found["point"] = [f"p{number}" for number in range(len(rows))]
    assert conv.wrong(found).values.tolist() == [
        ["FFT", "backward data", "fma", "different", 2, "p0", "relative error 0.5"],
        ["GEMM", "backward data", "fma", "failed", 1, "p4", "timed_out"]]
    assert conv.wrong(found[2:4]).empty


def test_the_gain_is_the_best_other_over_the_best_fft(swept):
    gains = fft_sweep.gains(study_reader.estimates(study_reader.read(swept))).sort_values("gain")
    assert gains[["r", "y", "candidate", "candidate_other", "gain"]].values.tolist() == [
        [3, 8, "FFT", "GEMM", 0.5], [13, 32, "FFT_TILING", "DIRECT", 24.0]]  # a layer with no FFT has no gain
    table = fft_sweep.by_kernel(gains)
    assert table["largest gain"].tolist() == ["0.500", "24.0"]
    assert table["in the paper, on a K40"].tolist() == ["", ""]  # which has the mean of three passes
    whole = fft_sweep.by_kernel(gains.assign(**{"pass": "three passes"}))
    assert whole["in the paper, on a K40"].tolist() == ["up to 1.84", "up to 23.5"]
    assert table["there"][1] == "13 x 13, 128 samples x 96 to 96 planes, 32 x 32 out: DIRECT 24.0 ms, FFT_TILING 1.00 ms"
    assert fft_sweep.headline(gains) == (
        "Largest gain in fma: 24.0 times, forward of 13 x 13, 128 samples x 96 to 96 planes, 32 x 32 out.")


def test_the_three_passes_of_a_layer_add_up_where_all_were_measured():
    rows = [{"point": kind, "n": 1, "c": 2, "k": 3, "r": 5, "y": 8, "pass": kind, "math": "fma", "candidate": "FFT", "seconds": 1.0,
             "candidate_other": "GEMM", "seconds_other": seconds, "gain": seconds}
            for kind, seconds in (("forward", 2.0), ("backward_data", 3.0), ("backward_filter", 4.0))]
    (row,) = fft_sweep.three_passes(pd.DataFrame(rows)).to_dict("records")
    assert (row["pass"], row["seconds"], row["seconds_other"], row["gain"]) == ("three passes", 3.0, 9.0, 3.0)
    assert fft_sweep.three_passes(pd.DataFrame(rows[:2])).empty
    whole = pd.concat([pd.DataFrame(rows).assign(r=13), fft_sweep.three_passes(pd.DataFrame(rows).assign(r=13))])
    assert fft_sweep.headline(whole) == (
        "Largest gain in fma: 4.00 times, backward filter of 13 x 13, 1 samples x 2 to 3 planes, 8 x 8 out. The largest gain "
        "of three passes together is 3.00 times, at 13 x 13, 1 samples x 2 to 3 planes, 8 x 8 out. By kernel it is 3.00 at 13 x 13. "
        "The paper has up to 1.84 at 3 x 3 and 23.5 at 13 x 13.")


def test_a_sweep_s_page_has_its_maps(swept):
    assert "Largest gain in fma: 24.0 times" in kinds.write(swept, swept).read_text()
    assert (swept / "plots" / "sweep_forward_fma.png").exists()


def test_a_folder_that_holds_no_study_is_named(tmp_path):
    with pytest.raises(BadRecords, match=r"study\.json: no such file; name a folder that `dlbench study` wrote"):
        study_reader.read(tmp_path)


@pytest.mark.parametrize(("kernel", "algorithm", "kind"), [
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nchwkcrs_nchw_tilesize128x128x8", "IMPLICIT_PRECOMP_GEMM",
     "forward"),
    ("cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "WINOGRAD", "not said"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "WINOGRAD_NONFUSED", "not said"),
    ("void fft2d_r2c_32x32<float, false, 0u, false>", "FFT or FFT_TILING", "not said"),
    ("void cudnn::cnn::dgrad2d_grouped_direct_kernel<float>", "DIRECT", "backward_data"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7>", "not said", "backward_filter"),
])
def test_a_kernel_s_name_tells_its_algorithm_and_pass(kernel, algorithm, kind):
    assert family(kernel) == Family(algorithm, kind)
