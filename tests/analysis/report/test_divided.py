"""The report puts counted bytes of divided networks beside predicted ones."""

import math

import pandas as pd
import pytest

from analysis.display.ranking import GROUP
from analysis.records.text import BadRecords
from analysis.report import divided
from analysis.strategies import table as strategies
from analysis.trials import summary

SETTINGS = "8 micro-batches; stages that end with sigmoid2, dense4"
SENT = 2 * 4 * 2 * 1024 * 4096
ROW = {**dict.fromkeys(GROUP, ""), "network": "fcn5", "batch": 1024, "framework": "pytorch",
       "precision": "fp32", "devices": 2, "global_batch": 2048, "strategy": "pipeline_1f1b",
       "settings": SETTINGS, "verified": "yes", divided.COUNTED: 1.01 * SENT, "stage_idle_shares": pd.NA}


def table(**changes):
    row = {**ROW, **changes}
    return divided.table(pd.DataFrame([row, {**row, "strategy": "ddp", "settings": ""}]))


def test_counted_bytes_stand_beside_predicted_ones():
    assert strategies.step_bytes(ROW, SETTINGS) == SENT
    first = table().iloc[0]
    assert first["sent, predicted (MiB)"] == "64.0"
    assert first["counted / predicted"] == "1.010"
    assert first["pipeline idle, predicted (%)"] == "11.1"


def test_without_a_counter_the_column_is_left_out_and_the_page_says_why():
    trials = pd.DataFrame([{**ROW, divided.COUNTED: math.nan}])
    assert "counted / predicted" not in divided.table(trials)
    assert divided.remark(trials).startswith("Not counted: ")
    assert divided.remark(pd.DataFrame([ROW])) == ""


def test_rows_that_divide_nothing_have_no_table():
    assert divided.table(pd.DataFrame([{**ROW, "strategy": "ddp"}])).empty
    assert table(verified="no").empty


def test_the_measured_idle_share_of_each_stage_stands_beside_the_predicted_one():
    assert divided.IDLE not in table()
    measured = table(stage_idle_shares="0.0500 0.2500")
    assert measured[divided.IDLE].tolist()[0] == "15.0 (5.00, 25.0)"
    said = divided.remark(pd.DataFrame([{**ROW, "stage_idle_shares": "0.0500 0.2500"}]))
    assert said.startswith("Measured: the share of a step's pipeline")


def test_shares_that_are_none_or_of_other_ranks_are_bad_records():
    def of(*said):
        return summary._idle(pd.DataFrame({"stage_idle_shares": said}))

    assert of("0.1000 0.5000", "", "0.2000 0.3000") == "0.1500 0.4000" and pd.isna(of("", ""))
    for wrong in ("x", "0.1000", "0.1 0.2 0.3", "nan nan"):
        with pytest.raises(BadRecords, match="column stage_idle_shares"):
            of("0.1000 0.5000", wrong)
