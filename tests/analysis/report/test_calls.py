"""Tables of inference, from the records of engines that ran ResNet-50 on a CPU."""

import pandas as pd
import pytest

from analysis.records import reader
from analysis.report import calls
from analysis.trials import summary
from tests.recorded import RESULTS

RECORDED = RESULTS / "cpu-inference-resnet50-2026-11-25"


def test_build_and_first_call_stand_beside_each_other_and_together():
    campaign = reader.read(RECORDED)
    table = calls.first_call(campaign, summary.summarise(campaign)).set_index(["framework", "precision"])
    assert len(table) == 7
    assert table.loc[("onnxruntime", "fp32"), ["build (s)", "first call (s)", "both (s)", "file (MiB)"]].tolist() == [
        "1.12 (1.05 to 1.24)", "0.0325 (0.0285 to 0.111)", "1.18 (1.08 to 1.27)", "97.7"]
    assert table["file (MiB)"].tolist() == ["", "", "", "97.7", "97.7", "24.8", "24.8"]


@pytest.mark.parametrize("engines", ["pytorch", "jax"])
def test_engines_that_read_no_file_have_no_size(engines):
    campaign = reader.read(RECORDED)
    trials = summary.summarise(campaign)
    assert list(calls.first_call(campaign, trials[trials["framework"] == engines]).columns[-3:]) == [
        "build (s)", "first call (s)", "both (s)"]


def test_training_and_campaigns_that_kept_no_first_call_have_no_such_table(campaign):
    assert calls.first_call(campaign, summary.summarise(campaign)).empty
    old = reader.read(RECORDED)
    old.processes["first_call_seconds"] = float("nan")
    rows = summary.summarise(old)
    assert calls.first_call(old, rows).empty and pd.notna(rows["latency_p50_seconds"]).any()
