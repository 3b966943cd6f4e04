"""The speed-up of a GPU: only between verified rows that are one trial on two devices, with the interval of both."""

import pytest

from analysis.records import reader
from analysis.report import report, speed_up
from analysis.trials import summary

GPU = {"device_kind": "cuda", "threads": 1}


def pairs_of(made, folder):
    campaign = reader.read(made.write(folder))
    return speed_up.by_trial(campaign, summary.summarise(campaign))


def test_a_gpu_ten_times_as_fast_is_shown_so(made, tmp_path):
    made.add_trial("pytorch", "alexnet_cifar", 128, slower=0.1, **GPU)
    (pair,) = pairs_of(made, tmp_path).to_dict("records")
    assert (pair["framework"], pair["device_kind"], pair["cpu_threads"]) == ("pytorch", "cuda", 2)
    assert pair["cpu_trial"] == "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"
    assert pair["speed_up"] == pytest.approx(10, rel=0.15)
    assert pair["speed_up_low"] < 10 < pair["speed_up_high"]


@pytest.mark.parametrize("other", [{"precision": "tf32"}, {"tuning": "tuned"}, {"data": "host"}, {"release": "2.9.1"}])
def test_what_is_another_trial_is_no_pair(made, tmp_path, other):
    made.add_trial("pytorch", "alexnet_cifar", 128, slower=0.1, **GPU, **other)
    assert pairs_of(made, tmp_path).empty


def test_a_row_that_is_not_verified_is_no_pair(made, tmp_path):
    name = made.add_trial("pytorch", "alexnet_cifar", 128, slower=0.1, **GPU)
    made.processes_of(name)[0]["check"] = "different"
    assert pairs_of(made, tmp_path).empty


def test_few_processes_give_no_interval(made, tmp_path):
    made.add_trial("pytorch", "alexnet_cifar", 128, slower=0.1, processes=2, **GPU)
    table = speed_up.table(pairs_of(made, tmp_path))
    assert table.columns.tolist() == ["network", "batch", "framework", "CPU threads", "CPU (ms)", "GPU (ms)", "speed-up",
                                      "95 % interval"]
    assert table["95 % interval"].tolist() == [""]


def test_the_report_has_table_and_figure_only_where_there_are_both(made, tmp_path):
    folder = made.write(tmp_path / "cpu")
    report.write([folder], folder, plots=False)
    assert "speed-up" not in (folder / "report.md").read_text()
    for framework in ("pytorch", "tensorflow"):
        made.add_trial(framework, "alexnet_cifar", 128, slower=0.1, **GPU)
    folder = made.write(tmp_path / "both")
    report.write([folder], folder)
    assert "## The GPU's speed-up over the processor" in (folder / "report.md").read_text()
    assert (folder / "plots/speed_up.svg").exists() and (folder / "tables/speed_up.csv").exists()
