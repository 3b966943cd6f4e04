"""Hands a campaign's records to other tools: TensorBoard, MLflow, Prometheus.

It works on records, so no tracker runs while something is timed. Each tool's own library writes,
and is needed only for that tool.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from analysis.records.reader import Campaign
from analysis.trials import summary

# Columns of trials.csv that name a row, and its numbers.
LABELS = ("trial", "framework", "release", "network", "batch", "devices", "device_kind",
          "precision", "tuning", "data", "verified")
VALUES = {"step_seconds": "Time per mini-batch", "step_seconds_low": "Lower end of its interval",
          "step_seconds_high": "Upper end of its interval", "samples_per_second": "Throughput",
          "device_memory_bytes": "Most that the driver charged to the processes on a GPU",
          "peak_memory_bytes": "Peak memory by the framework's allocator, or of a worker on a CPU",
          "energy_joules_per_step": "Energy of a mini-batch"}


def to_tensorboard(campaign: Campaign, out: Path) -> str:
    """Write the losses and step times of each process as a run of TensorBoard under `out`."""
    from tensorboardX import SummaryWriter

    for run, _, windows in _processes(campaign):
        with SummaryWriter(str(out / run)) as writer:
            for window in windows:
                for key in ("loss", "step_seconds"):
                    writer.add_scalar(key, window[key], int(window["last_step"]), window["wall"])
    return f"tensorboard --logdir {out}"


def to_mlflow(campaign: Campaign, out: Path) -> str:
    """Write each process as a run of MLflow, in a file store in `out` or at its tracking URI."""
    import os

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    uri = os.environ.get("MLFLOW_TRACKING_URI") or out.absolute().as_uri()
    client = MlflowClient(tracking_uri=uri)
    title = campaign.folder.name
    known = client.get_experiment_by_name(title)
    experiment = known.experiment_id if known else client.create_experiment(title)
    rows = {row["trial"]: row for row in summary.summarise(campaign).to_dict("records")}
    for name, trial, windows in _processes(campaign):
        run = client.create_run(experiment, start_time=_ms(windows[0]["wall"]), run_name=name)
        for key in LABELS:
            client.log_param(run.info.run_id, key, rows[trial][key])
        metrics = [Metric(key, window[key], _ms(window["wall"]), int(window["last_step"]))
                   for window in windows for key in ("loss", "step_seconds")]
        for begin in range(0, len(metrics), 1000):  # MLflow's limit of a batch
            client.log_batch(run.info.run_id, metrics[begin:begin + 1000])
        client.set_terminated(run.info.run_id, end_time=_ms(windows[-1]["wall"]))
    return f"mlflow ui --backend-store-uri {uri}"


def to_prometheus(campaign: Campaign, out: Path) -> str:
    """Write a row's numbers as gauges into `out`/dlbench.prom, for node_exporter's text files."""
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    registry = CollectorRegistry()
    gauges = {key: Gauge(f"dlbench_{key}", text, LABELS, registry=registry)
              for key, text in VALUES.items()}
    for row in summary.summarise(campaign).to_dict("records"):
        for key, gauge in gauges.items():
            value = row.get(key)
            if row["status"] == "ok" and isinstance(value, int | float) and math.isfinite(value):
                gauge.labels(*(str(row[label]) for label in LABELS)).set(value)
    file = out / "dlbench.prom"
    write_to_textfile(str(file), registry)
    return f"{file}: for node_exporter --collector.textfile.directory"


# What each writes into an existing folder; it returns how to look at it.
TOOLS: Mapping[str, Callable[[Campaign, Path], str]] = {
    "tensorboard": to_tensorboard, "mlflow": to_mlflow, "prometheus": to_prometheus}


def _processes(campaign: Campaign) -> Iterator[tuple[str, str, list[dict[Any, Any]]]]:
    """Yield each ok process's name, trial and windows; `wall` is when a window ended (Unix)."""
    campaign = summary.without_diverged(campaign)
    ok = campaign.processes[campaign.processes["status"] == "ok"]
    for row in ok.sort_values("order").to_dict("records"):
        own = campaign.rows("windows", row["trial"])
        own = own[own["process"] == row["process"]]
        windows = own.sort_values("last_step").to_dict("records")
        began = datetime.fromisoformat(row["started"]).timestamp()
        for window in windows:
            window["wall"] = began + window["stop"] - windows[0]["start"]
        if windows:
            yield f"{row['trial']}-{row['process']}", row["trial"], windows


def _ms(seconds: float) -> int:
    return int(1000 * seconds)
