"""What a machine's peaks allow, and what a step lost: parts that add up to its time, and nothing where no peak was measured."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis.records import reader
from analysis.report import report, roofline
from analysis.report.roofline import COMPUTE, LOST, MEMORY, UNKNOWN
from analysis.trials import summary

RECORDED = Path(__file__).parents[1] / "recorded" / "h200-fcn5"
BANDWIDTH = 4.2e12


@pytest.fixture
def h200(tmp_path):
    """The recorded campaign as if it had measured the memory's bandwidth too, and JAX as it comes had told no peak of its own."""
    campaign = reader.read(shutil.copytree(RECORDED, tmp_path / "campaign"))
    campaign.meta["peaks"] = [{**peak, "bytes_per_second": BANDWIDTH} for peak in campaign.meta["peaks"]
                              if peak["framework"] != "jaxplain"]
    return campaign


def test_each_stage_takes_its_operations_or_its_bytes_whichever_is_longer():
    trial = {"network": "tiny_fcn", "batch": 4, "precision": "fp32", "device_kind": "cuda", "threads": 1}
    stages = roofline.work.stages(roofline.networks.get("tiny_fcn"), 4)
    flops = sum(stage.flops for stage in stages)
    fast, slow = ({"device_kind": "cuda", "threads": 1, "precision": "fp32", "flops": 1e6, "bytes_per_second": each}
                  for each in (1e15, 1.0))
    computing = roofline.of_trial(trial, {"peaks": [fast]})
    assert (computing.compute_seconds, computing.memory_seconds) == (pytest.approx(flops / 1e6), 0)
    moving = roofline.of_trial(trial, {"peaks": [slow]})
    assert (moving.compute_seconds, moving.memory_seconds) == (0, sum(stage.bytes for stage in stages))
    assert 0 < moving.product_seconds < moving.seconds


def test_a_call_in_inference_has_the_limit_of_its_forward_pass():
    trial = {"network": "lenet5", "batch": 4, "precision": "fp32", "device_kind": "cpu", "threads": 1, "mode": "inference"}
    peak = {"device_kind": "cpu", "threads": 1, "precision": "fp32", "flops": 1e6, "bytes_per_second": 1e15}
    call = roofline.of_trial(trial, {"peaks": [peak]})
    assert call.seconds == pytest.approx(roofline.work.flops_per_step(roofline.networks.get("lenet5"), 4, "inference") / 1e6)
    assert call.seconds == call.product_seconds  # nothing is updated
    step = roofline.of_trial({**trial, "mode": "training"}, {"peaks": [peak]})
    assert step.seconds > 2 * call.seconds


def test_the_limit_and_what_was_lost_are_the_whole_step(h200):
    found = roofline.by_trial(h200, summary.summarise(h200))
    assert found["framework"].tolist() == ["pytorch", "jax"]  # what the audit refused has no place beside them
    assert found[[COMPUTE, MEMORY, *LOST]].sum(axis=1).tolist() == pytest.approx(found["step_seconds"].tolist())
    share = (found[COMPUTE] + found[MEMORY]) / found["step_seconds"]
    assert share.tolist() == pytest.approx([0.696, 0.871], abs=0.001)
    assert found["idle"].tolist() == pytest.approx([232e-6, 22e-6], abs=1e-6)


def test_a_row_without_a_trace_has_lost_to_nobody_knows_what(h200):
    (h200.folder / "kernels.csv").unlink()
    bare = reader.read(h200.folder)
    bare.meta["peaks"] = h200.meta["peaks"]
    found = roofline.by_trial(bare, summary.summarise(bare))
    assert found[[COMPUTE, MEMORY, UNKNOWN]].sum(axis=1).tolist() == pytest.approx(found["step_seconds"].tolist())
    assert found[[*LOST]].isna().all(axis=None)
    assert "lost, not traced" in roofline.table(found).columns


def test_the_figure_shows_the_limit_of_the_table_beside_a_negative_loss(h200):
    found = roofline.by_trial(h200, summary.summarise(h200))
    found.loc[0, ["idle", "layout"]] += [-1e-3, 1e-3]
    axes = roofline.figure(found).axes[0]
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers}
    for name in (COMPUTE, MEMORY):
        assert widths.get(name, [0, 0]) == pytest.approx((100 * found[name] / found["step_seconds"]).tolist())
    assert sum(values[0] for values in widths.values()) == pytest.approx(100)
    assert min(map(min, widths.values())) >= 0


def test_a_campaign_without_a_bandwidth_has_no_limits():
    campaign = reader.read(RECORDED)
    assert roofline.by_trial(campaign, summary.summarise(campaign)).empty


def test_another_kind_of_device_lends_no_peak(h200):
    trial = {"device_kind": "cpu", "threads": 1, "precision": "fp32", "network": "fcn5", "batch": 1024}
    assert roofline.bandwidth_of(trial, h200.meta) is None and roofline.of_trial(trial, h200.meta) is None
    trial["device_kind"] = "cuda"
    assert roofline.of_trial(trial | {"network": "their_own"}, h200.meta) is None
    assert roofline.of_trial(trial, h200.meta) is not None


def test_the_report_shows_limits_where_there_are_any(h200, tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    report.write([h200.folder], plain, plots=False)
    assert not (plain / "tables" / "limits.csv").exists() and "hardware limit" not in (plain / "report.md").read_text()
    monkeypatch.setattr(reader, "read", lambda folder: h200)
    report.write([h200.folder], tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "tables" / "limits.csv")
    assert table["limit / time"].tolist() == ["69.6 %", "87.1 %"]
    assert table["lost: idle"].tolist() == ["9.5 %", "1.14 %"]
    assert (tmp_path / "out" / "plots" / "limits.svg").exists()
    assert "Distance from the hardware limit" in (tmp_path / "out" / "report.html").read_text()
