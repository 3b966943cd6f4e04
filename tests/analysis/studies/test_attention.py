"""Tables and plots of the attention study from measurements with known answers."""

import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.audit import audit
from analysis.display import page
from analysis.display.ranking import NO_DIFFERENCE, TOO_FEW
from analysis.records import study_reader
from analysis.site import findings
from analysis.studies import attention, attention_plot, kinds
from tests.analysis.records.test_study_reader import study

BASE = {"batch": 8, "length": 1024, "heads": 16, "width": 64, "precision": "bf16"}
OPERATIONS = 4 * 8 * 16 * 1024**2 * 64
NONE = {"batch": 0, "heads": 0, "width": 0, "causal": "no"}
# Seconds of each implementation, forward without a mask.
SECONDS = {("pytorch", "math"): 4e-4, ("pytorch", "flash"): 1e-4, ("jax", "cudnn"): 2e-4, ("jax", "xla"): 5e-4,
           ("tensorflow", "keras"): 8e-4}


def point(mask="unmasked", kind="forward", length=1024):
    return {"point": f"b8-t{length}-h16-d64-{mask}-bf16-{kind}", **BASE, "length": length, "pass": kind,
            "causal": "yes" if mask == "causal" else "no"}


def recorded(tmp_path, processes=3, spread=0.01, seconds=SECONDS):
    points = [point(), point(kind="forward_backward"), point("causal"), point(length=4096),
              {"point": "product-8192-bf16", **NONE, "length": 8192, "precision": "bf16", "pass": "product"},
              {"point": "memory", **NONE, "length": 2**28, "precision": "fp32", "pass": "memory"}]
    rows = []
    for each in points[:4]:
        rows += [(each["point"], candidate, process, [took * (1 + spread * (process + 1) * (-1) ** process)] * 2, {
            "bench": bench, "error": 2e-3, "errors": "o=0.002", "kernels": "" if process else f"{candidate}_fwd; other"})
            for (bench, candidate), took in seconds.items() for process in range(processes)]
        rows += [(each["point"], "efficient", process, [], {
            "status": "unsupported", "reason": "only on Sundays"}) for process in range(processes)]
    for name, took in (("product-8192-bf16", 2 * 8192**3 / 800e12), ("memory", 8 * 2**28 / 4e12)):
        rows += [(name, name.partition("-")[0], process, [took] * 2, {"error": 0.0}) for process in range(processes)]
    return study(tmp_path, "attention", points, rows, {"base": points[0]["point"]})


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path)


def able_of(folder):
    read = study_reader.read(folder)
    table = attention.speeds(study_reader.estimates(read))
    return read, table, table[table["status"] == "ok"]


def test_operations_bytes_and_shares_are_counted(folder):
    _, _, able = able_of(folder)
    flash = able[able["candidate"] == "flash"].set_index(["length", "pass", "causal"]).sort_index()
    assert flash.loc[(1024, "forward", "no"), "operations"] == OPERATIONS
    assert flash.loc[(1024, "forward", "yes"), "operations"] == OPERATIONS / 2
    assert flash.loc[(1024, "forward_backward", "no"), "operations"] == 3.5 * OPERATIONS
    assert flash.loc[(4096, "forward", "no"), "operations"] == 16 * OPERATIONS
    assert flash.loc[(1024, "forward", "no"), "intensity"] == 512  # T / 2 bytes
    assert flash.loc[(1024, "forward", "no"), "share"] == pytest.approx(OPERATIONS / 1e-4 / 800e12, rel=0.03)


def test_the_question_is_answered_at_its_setting_with_an_interval(folder):
    read, _, able = able_of(folder)
    text = attention.answer(read, able)
    assert text.startswith("At B 8, T 1024, H 16, D 64, bf16, no mask, forward (TFLOP/s): PyTorch flash 3")
    assert "JAX takes 2.00 (" in text and "Over 4 settings it takes 2.00 to 2.00 times as long" in text
    assert text.endswith("1.43 times as long.")
    (first, *_) = attention.frameworks(read, able).to_dict("records")
    assert first["jax (TFLOP/s)"].endswith(", cudnn") and first["pytorch (TFLOP/s)"].endswith(", flash")
    assert first["JAX over PyTorch"].startswith("2.00 (")


def test_without_one_of_the_two_there_is_no_answer(tmp_path):
    read, _, able = able_of(recorded(tmp_path, seconds={("jax", "xla"): 1e-3}))
    assert attention.answer(read, able) == "JAX and PyTorch have no setting in common that both measured."
    assert set(attention.frameworks(read, able)["JAX over PyTorch"]) == {""}


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, "faster"), ({"processes": 1}, TOO_FEW),
    ({"spread": 0.3, "seconds": {("pytorch", "flash"): 1e-4, ("jax", "cudnn"): 1.1e-4}}, NO_DIFFERENCE),
])
def test_the_fastest_is_said_to_be_faster_where_the_interval_excludes_1(tmp_path, change, verdict):
    read, _, able = able_of(recorded(tmp_path, **change))
    first = attention.fastest(read, able).iloc[0]
    assert (first["fastest"], first["next"], first["verdict"]) == ("PyTorch flash", "JAX cuDNN", verdict)


def test_the_report_shows_errors_kernels_and_refusals_and_passes_the_audit(folder):
    page = kinds.write(folder, folder).read_text()
    report = (folder / "report.md").read_text()
    assert "How far is JAX behind PyTorch?" in page and "only on Sundays" in report
    assert "| PyTorch flash | bf16 | forward | 3 | flash_fwd; other |" in report
    assert "| JAX cuDNN | bf16 | 2.0e-03 |  |" in report
    assert "square products 800 TFLOP/s in bf16; memory 4,000 GB/s" in report
    assert audit.audit(folder) == []
    before = (folder / "report.md").read_bytes()
    kinds.write(folder, folder)
    assert (folder / "report.md").read_bytes() == before
    said = findings.of_study(folder, "attention")
    assert said.startswith("At B 8, T 1024") and said.endswith("1.43 times as long.")
    table = pd.read_csv(folder / "tables" / "fastest.csv")
    assert list(table["T"]) == [1024, 1024, 1024, 4096]


def test_a_map_has_the_speed_of_each_implementation_and_a_dash_where_there_is_none(folder):
    read, table, _ = able_of(folder)
    [(column, heading, rows)] = attention.slices(table, attention.base_of(read, table))
    figure = attention_plot.maps(rows, column, heading)
    first = figure.axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == [
        "PyTorch math", "PyTorch flash", "JAX cuDNN", "JAX XLA", "Keras on TensorFlow", "PyTorch efficient"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["1,024", "4,096"]
    texts = [text.get_text() for text in first.texts]
    assert texts.count("\N{EN DASH}") == 2 and len(texts) == 12
    # A page replaces these colours, and white numbers on dark cells could not be read.
    assert not {text.get_color() for text in first.texts if text.get_text() != "\N{EN DASH}"} & set(page.PAGE_COLOURS)
    assert attention_plot.ON_DARK not in page.PAGE_COLOURS and attention_plot.ON_LIGHT not in page.PAGE_COLOURS
    assert [axes.get_title("left") for axes in figure.axes[:4]] == [
        "forward, no mask", "forward, causal mask", "forward and backward, no mask", ""]


def test_the_roof_is_the_memory_s_and_then_the_products(folder):
    read, table, able = able_of(folder)
    peaks = attention.peaks_of(study_reader.estimates(read))
    figure = attention_plot.roofline(able, attention.base_of(read, table), peaks)
    roof = np.array(figure.axes[0].lines[0].get_data())
    assert roof[1].max() == pytest.approx(800) and roof[1][0] == pytest.approx(4 * roof[0][0])


def test_a_study_of_an_earlier_release_has_no_kernels_and_is_read(folder, tmp_path):
    file = folder / "measurements.csv"
    older = pd.read_csv(file, dtype=str, keep_default_na=False).drop(columns=list(study_reader.LATE))
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    older.to_csv(copy / "measurements.csv", index=False)
    read = study_reader.read(copy)
    assert set(read.measurements["kernels"]) == {""} == set(read.measurements["errors"])
