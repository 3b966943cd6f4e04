"""What other tools read of a campaign is what its records hold."""

import struct
import sys

import pytest

from analysis.records import reader
from analysis.trials import exports, summary
from harness.cli.publish import export
from harness.errors import WrongUse


@pytest.fixture
def campaign(made, tmp_path):
    return reader.read(made.write(tmp_path / "campaign"))


def events_of(folder):
    """The scalars of TensorBoard's event files: length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.glob("events.*")):
        data = file.read_bytes()
        while data:
            length, = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12:12 + length])
            data = data[16 + length:]
            yield from ((value.tag, event.step, value.simple_value) for value in event.summary.value)


def test_tensorboard_reads_every_loss_and_step_time(campaign, tmp_path):
    assert exports.to_tensorboard(campaign, tmp_path / "board").startswith("tensorboard --logdir")
    for row in campaign.processes.to_dict("records"):
        windows = campaign.windows[(campaign.windows["trial"] == row["trial"])
                                   & (campaign.windows["process"] == row["process"])]
        expected = {(key, int(window["last_step"])): window[key]
                    for window in windows.to_dict("records") for key in ("loss", "step_seconds")}
        found = {(tag, step): value for tag, step, value in
                 events_of(tmp_path / "board" / f"{row['trial']}-{row['process']}")}
        assert found == pytest.approx(expected, rel=1e-6)


def test_prometheus_reads_each_row(made, tmp_path):
    from prometheus_client.parser import text_string_to_metric_families

    made.put_on_a_gpu(pytorch=2**30)
    campaign = reader.read(made.write(tmp_path / "campaign"))
    exports.to_prometheus(campaign, tmp_path)
    text = (tmp_path / "dlbench.prom").read_text()
    found = {sample.labels["trial"]: sample.value for family in text_string_to_metric_families(text)
             for sample in family.samples if sample.name == "dlbench_step_seconds"}
    rows = summary.summarise(campaign).set_index("trial")["step_seconds"]
    assert found == pytest.approx(rows.to_dict())
    held = [sample for family in text_string_to_metric_families(text) for sample in family.samples
            if sample.name == "dlbench_device_memory_bytes"]
    assert [(sample.labels["framework"], sample.value) for sample in held] == [("pytorch", 2**30 + 4 * 2**20)]


def test_mlflow_reads_each_process(campaign, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed (70 MB, 41 packages)")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    exports.to_mlflow(campaign, tmp_path / "runs")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "runs").as_uri())
    experiment = client.get_experiment_by_name("campaign").experiment_id
    runs = client.search_runs([experiment])
    assert len(runs) == len(campaign.processes)
    for run in runs:
        trial, _, process = run.info.run_name.rpartition("-")
        windows = campaign.windows[(campaign.windows["trial"] == trial)
                                   & (campaign.windows["process"] == int(process))]
        losses = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "loss")}
        assert losses == pytest.approx(dict(zip(windows["last_step"], windows["loss"], strict=True)))


def test_an_unknown_tool_and_a_missing_library_are_told(campaign, tmp_path, monkeypatch):
    with pytest.raises(WrongUse, match="--to wandb: no such tool; name one of tensorboard, mlflow, prometheus"):
        export(campaign.folder, "wandb", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(WrongUse, match=r"pip install -e '\.\[export\]'"):
        export(campaign.folder, "prometheus", tmp_path / "out")
    assert not (tmp_path / "out").exists()
