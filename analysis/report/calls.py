"""The tables of rows in inference: latency, first call, requests, scenarios, INT8, errors."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import BYTE_UNITS, TIME_UNITS, best_unit, cell, error, number
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap
from analysis.trials import summary
from analysis.trials.latency import QUANTILES

STARTS = {"build": ["build_seconds"], "first call": ["first_call_seconds"],
          "both": ["build_seconds", "first_call_seconds"]}


def latency(trials: pd.DataFrame) -> pd.DataFrame:
    """List the quantiles of every row in inference, each with its interval, and the throughput."""
    kept = (trials["status"] == "ok") & trials["latency_p50_seconds"].notna()
    unit, scale = best_unit(trials.loc[kept, "latency_p50_seconds"], TIME_UNITS)
    return ranking.table(trials, lambda row: {
        **{f"{name} ({unit})": cell(row, f"latency_{name}_seconds", scale) for name in QUANTILES},
        "samples per second": number(row["samples_per_second"])}, kept)


def first_call(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """List how long an engine's build and its first call took, and the size of the file it reads.
    """
    campaign = summary.without_diverged(campaign)
    kept = (trials["status"] == "ok") & trials["first_call_seconds"].notna()
    unit, scale = best_unit(trials.loc[kept, "model_bytes"].dropna(), BYTE_UNITS)
    sized = bool(trials.loc[kept, "model_bytes"].notna().any())
    return ranking.table(trials, lambda row: {
        **{f"{name} (s)": _seconds(campaign, row, columns) for name, columns in STARTS.items()},
        **({f"file ({unit})": number(row["model_bytes"] / scale)} if sized else {})}, kept)


def _seconds(campaign: Campaign, row: "pd.Series[Any]", columns: list[str]) -> str:
    """Write the sum of a process's columns: the median over ok processes, with its interval."""
    ok = campaign.ok_rows("processes", row["trial"])
    sums = ok[columns].sum(axis=1, skipna=False)
    if sums.isna().any() or (sums <= 0).any():
        return ""
    times = summary.by_node(campaign, row["trial"], [np.array([each]) for each in sums])
    return cell(bootstrap.estimate(times).columns("seconds"), "seconds")


def requests(trials: pd.DataFrame) -> pd.DataFrame:
    """List the highest rate of random requests of every row that sought one."""
    kept = (trials["status"] == "ok") & trials["requests_per_second"].notna()
    return ranking.table(trials, lambda row: {
        "requests per second": cell(row, "requests_per_second"),
        "of calls one after another (%)": number(
            100 * row["requests_per_second"] * row["step_seconds"] / row["batch"])}, kept)


def scenarios(trials: pd.DataFrame, played: pd.DataFrame) -> pd.DataFrame:
    """List the runs of LoadGen: the median of a row's processes, and LoadGen's own verdict.

    Without a number where a process has none, as where it found no rate of a server.
    """
    unit, scale = best_unit(played["latency_p99_seconds"].dropna(), TIME_UNITS)
    lines = []
    for (name, scenario), runs in played.groupby(["trial", "scenario"], sort=False):
        cells = {"scenario": str(scenario),
                 "samples per second": number(runs["samples_per_second"].median(skipna=False)),
                 f"p99 ({unit})": number(
                     runs["latency_p99_seconds"].median(skipna=False) / scale),
                 "valid": f"{int(runs['valid'].sum())} of {len(runs)}",
                 "not met": "; ".join(filter(None, runs["unmet"].unique()))}
        row = ranking.table(trials, lambda row: {}, trials["trial"] == name)
        lines.append(row.assign(**cells))
    return pd.concat(lines, ignore_index=True) if lines else pd.DataFrame()


def quantisation(trials: pd.DataFrame) -> pd.DataFrame:
    """List what INT8 cost each row in inference, and how large the file is."""
    kept = (trials["status"] == "ok") & trials["quantization_error"].notna()
    unit, scale = best_unit(trials.loc[kept, "model_bytes"], BYTE_UNITS)
    return ranking.table(trials, lambda row: {
        "relative error (%)": number(100 * row["quantization_error"]),
        "same largest output (%)": number(100 * row["top1_agreement"]),
        f"file ({unit})": number(row["model_bytes"] / scale)}, kept)


def answers(trials: pd.DataFrame) -> pd.DataFrame:
    """List how many of a test part's samples every row with trained weights answers right."""
    kept = (trials["status"] == "ok") & trials["test_accuracy"].notna()
    return ranking.table(trials, lambda row: {
        "test accuracy (%)": f"{100 * row['test_accuracy']:.2f}",
        "of the float64 reference (%)": f"{100 * row['reference_accuracy']:.2f}",
        "lost (points)": _points(row), "samples": f"{row['test_samples']:,}"}, kept)


def _points(row: Any) -> str:
    """Write a difference of shares in percentage points, with its interval.

    Three digits of a small difference would say more than its samples do.
    """
    low, high = (100 * row[f"accuracy_lost_{end}"] for end in ("low", "high"))
    return f"{100 * row['accuracy_lost']:.2f} ({low:.2f} to {high:.2f})"


def outputs(trials: pd.DataFrame) -> pd.DataFrame:
    """List how far the outputs of every row in inference were off, and what was allowed."""
    kept = (trials["status"] == "ok") & trials["output_limit"].notna()
    return ranking.table(trials, lambda row: {
        "error": error(row["output_error"]), "allowed": error(row["output_limit"])}, kept)
