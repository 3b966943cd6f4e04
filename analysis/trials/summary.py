"""Makes `trials.csv`: one row a trial of a campaign, derived from the other files.

The driver calls `rewrite` after every process, so the table of a killed campaign is whole.
docs/reference/records.md explains the columns.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.proof import evidence, plausibility, sameness, timer
from analysis.records import reader
from analysis.records.columns import OF_ANSWERS, OF_ENGINES, STRENGTH
from analysis.records.reader import Campaign
from analysis.statistics import bootstrap, warm_up
from analysis.trials import accuracy, caveats, counters, latency, loading, phases, remarks

# Of campaigns that train on several nodes.
OF_NODES = ("nodes", "network_tx_bytes_per_step")
# Of campaigns that several nodes repeated.
OF_REPETITION = ("repeated_on_nodes",)
# Of campaigns that run trained networks.
OF_INFERENCE = ("mode", "output_error", "output_limit", *latency.COLUMNS, *OF_ENGINES)
# Of campaigns that train to a test accuracy.
OF_TARGET = accuracy.COLUMNS
# Of campaigns that train from image files.
OF_FILES = loading.COLUMNS
# Of campaigns whose driver said what processes held on a GPU.
OF_DRIVERS = ("device_memory_bytes",)
# Of campaigns whose trained weights answered a test part.
OF_TESTS = (*OF_ANSWERS, *accuracy.LOST)
COLUMNS = (
    "framework", "release", "network", "batch", "devices", "device_kind", "threads", "precision",
    "tuning", "data", "status", "reason", "verified", "parameters", "processes", "windows", "steps",
    "step_seconds", "step_seconds_low", "step_seconds_high", "samples_per_second", "loss_first",
    "loss_last", "flops_per_step", "mfu", "peak_memory_bytes", "pcie_rx_bytes_per_step",
    "pcie_tx_bytes_per_step", "nvlink_bytes_per_step", "energy_joules_per_step", "trial",
    "processes_planned", "loss_error", "gradient_error", "trajectory_error", "throttled_windows",
    *evidence.COLUMNS, "side", "warm_up_windows", "strategy", "global_batch", "copies_error",
    *STRENGTH, "settings", "caveat", *OF_NODES, *OF_INFERENCE,
    *OF_REPETITION, *OF_TARGET, *OF_FILES, *OF_DRIVERS, *OF_TESTS,
)
WHOLE = ("batch", "devices", "threads", "parameters", "processes", "windows", "steps",
         "flops_per_step", "peak_memory_bytes", "processes_planned", "throttled_windows",
         "warm_up_windows", "global_batch", "model_bytes", "nodes", *OF_REPETITION,
         *OF_DRIVERS, "test_samples")
SETTINGS = (*COLUMNS[:10], "trial", "parameters", "flops_per_step", "processes_planned", "strategy",
            "global_batch")
# A trial has the largest error of its processes.
ERRORS = ("loss_error", "gradient_error", "trajectory_error", "copies_error", "output_error",
          "output_limit")
# The largest value of its processes that ended well.
LARGEST = (*STRENGTH, "peak_memory_bytes", "quantization_error", "model_bytes", *OF_DRIVERS)
NOT_RUN = "not run yet: the campaign was interrupted; `dlbench run --resume` goes on"


def rewrite(folder: str | Path) -> pd.DataFrame:
    """Derive the trials of the campaign in `folder` again and replace its trials.csv."""
    campaign = reader.read(folder)
    table = summarise(campaign)
    file = Path(folder) / "trials.csv"
    unfinished = file.with_name(f".trials.csv.{os.getpid()}")
    unfinished.write_text(as_csv(campaign, table), encoding="utf-8", newline="")
    os.replace(unfinished, file)
    return table


def as_csv(campaign: Campaign, table: pd.DataFrame) -> str:
    """Return the text of trials.csv; campaigns of earlier releases keep the columns they had."""
    on_nodes = any(trial.get("nodes", 1) > 1 for trial in campaign.trials)
    unknown = {"settings": not campaign.tells_settings,
               "caveat": not (campaign.folder / caveats.FILE).is_file(),
               **dict.fromkeys(STRENGTH, not campaign.proves_each_process),
               **dict.fromkeys(OF_NODES, not on_nodes),
               **dict.fromkeys(OF_REPETITION, not campaign.joined),
               **dict.fromkeys(OF_TARGET, not reader.target_of(campaign)),
               **dict.fromkeys(OF_FILES, not any(map(reader.reads_files, campaign.trials))),
               **dict.fromkeys(OF_DRIVERS, table[list(OF_DRIVERS)].isna().all(axis=None)),
               **dict.fromkeys(OF_TESTS, table[list(OF_TESTS)].isna().all(axis=None)),
               **dict.fromkeys(OF_INFERENCE, not any(map(reader.infers, campaign.trials)))}
    kept = table.drop(columns=[column for column, drop in unknown.items() if drop])
    return kept.to_csv(index=False, lineterminator="\n")


def summarise(campaign: Campaign) -> pd.DataFrame:
    """Derive a row a trial, with `COLUMNS` in their order; NA where nothing was measured."""
    campaign = without_diverged(campaign)
    judged = sameness.judge(campaign)
    contradicted = evidence.contradicted(campaign)
    rows = []
    for trial in campaign.trials:
        row = {column: trial[column] for column in SETTINGS} | {
            "side": trial.get("side", ""), "settings": "", "nodes": trial.get("nodes", 1),
            "mode": trial.get("mode", "training")}
        processes = campaign.rows("processes", trial["trial"])
        if (processes["status"] == "ok").any():
            against = [*judged[trial["trial"]].reasons, *contradicted[trial["trial"]]]
            own = sameness.Judged(against, judged[trial["trial"]].remarks)
            row |= _measured(campaign, trial, processes, own)
        else:
            row |= {"verified": "no", "processes": 0, "windows": 0, "steps": 0}
            row |= _refused(trial, processes)
        row["reason"] = "; ".join(filter(None, [row["reason"], *remarks.dirt(campaign)]))
        rows.append(row)
    table = plausibility.apply(pd.DataFrame(rows, columns=list(COLUMNS)), campaign.meta)
    table = caveats.apply(table, campaign)
    return table.astype(dict.fromkeys(WHOLE, "Int64"))


def times_of(campaign: Campaign, trial: str) -> list[bootstrap.Times]:
    """Collect a trial's step times in seconds without warm-up, one array an ok process.

    Of a campaign that several nodes repeated: one array a node, with a median a process.
    """
    times = timed(campaign, trial)
    return by_node(campaign, trial, [windows[warm_up.leading(times):] for windows in times])


def by_node(campaign: Campaign, trial: str, times: Sequence[bootstrap.Times]
            ) -> list[bootstrap.Times]:
    """Gather the arrays of a trial's ok processes by node, if several nodes repeated it."""
    ok = campaign.ok_rows("processes", trial)["process"]
    return bootstrap.by_node(times, campaign.nodes_of(trial, ok))


def too_wide(campaign: Campaign, interval: float, processes: int) -> set[str]:
    """Return the trials whose interval over `processes` processes is wider than `interval`.

    A trial whose last process failed is left out: it would fail again.
    """
    campaign = without_diverged(campaign)
    known = campaign.processes
    early = replace(campaign, processes=known[known["process"] < processes])
    last = known[(known["process"] == processes - 1) & (known["status"] == "ok")]
    return {trial for trial in last["trial"]
            if bootstrap.estimate(times_of(early, trial)).half_width > interval}


def timed(campaign: Campaign, trial: str) -> list[bootstrap.Times]:
    """Collect the step times in seconds of a trial's timed windows, one array an ok process."""
    windows = campaign.rows("windows", trial)
    windows = windows[windows["window"] >= 0]
    of, seconds = windows["process"].to_numpy(), windows["step_seconds"].to_numpy()
    return [seconds[of == process] for process in campaign.ok_rows("processes", trial)["process"]]


@lru_cache(maxsize=2)
def without_diverged(campaign: Campaign) -> Campaign:
    """Mark ok processes with a loss that is not finite, or without a timed window, as failed."""
    processes = campaign.processes.copy()
    windows = campaign.windows
    lossless = {trial["trial"] for trial in campaign.trials if reader.infers(trial)}
    infinite = windows[~np.isfinite(windows["loss"]) & ~windows["trial"].isin(lossless)]
    # The first such window of each process.
    first = {(row["trial"], row["process"]): row for row in infinite[::-1].to_dict("records")}
    timed_ones = windows[windows["window"] >= 0]
    known = set(zip(timed_ones["trial"], timed_ones["process"], strict=True))
    for index, row in processes[processes["status"] == "ok"].iterrows():
        key = (row["trial"], row["process"])
        if key in first:
            loss, step = first[key]["loss"], first[key]["last_step"]
            reason = f"diverged: the loss is {loss} after step {step:.0f}"
        elif key not in known:
            reason = "protocol: the process ended well but has no timed window"
        else:
            continue
        processes.loc[index, ["status", "reason"]] = ["failed", reason]
    return replace(campaign, processes=processes)


def _refused(trial: dict[str, Any], processes: pd.DataFrame) -> dict[str, Any]:
    failed = processes[processes["status"] == "failed"]
    if len(failed):
        return {"status": "failed", "reason": failed["reason"].iloc[0]}
    if len(processes):
        return {"status": "unsupported", "reason": processes["reason"].iloc[0]}
    if trial["status"] == "unsupported":
        return {"status": "unsupported", "reason": trial["reason"]}
    return {"status": "failed", "reason": NOT_RUN}


def _measured(campaign: Campaign, trial: dict[str, Any], processes: pd.DataFrame,
              judged: sameness.Judged) -> dict[str, Any]:
    name = trial["trial"]
    ok = processes[processes["status"] == "ok"]
    times = timed(campaign, name)
    dropped = warm_up.leading(times)
    grouped = by_node(campaign, name, [each[dropped:] for each in times])
    step = bootstrap.estimate(grouped)
    windows, kernels = campaign.ok_rows("windows", name), campaign.rows("kernels", name)
    used = windows[windows["window"] >= dropped]
    ends = windows.groupby("process")["loss"]
    counted = counters.of_trial(campaign, trial)
    own = _of_kind(campaign, trial, dropped, step.value)
    against = [
        *judged.reasons, *timer.reasons(windows, campaign.rows("counters", name),
                                        evaluates=bool(reader.target_of(campaign))),
        *own.against]
    of_losses = [*remarks.units(ok, grouped), *judged.remarks]
    said = [
        *remarks.of_processes(trial, processes, of_losses), *remarks.sharing(campaign, trial),
        *remarks.spread(campaign, times, step), *counted.remarks,
        *evidence.remarks(trial, kernels),
        *phases.remarks(campaign.ok_rows("phases", name), len(ok)), *own.remarks]
    return {
        "status": "ok", "verified": "no" if against else "yes",
        "reason": "; ".join([*against, *said]),
        "release": ok["release"].iloc[0] or trial["release"], "parameters": ok["parameters"].max(),
        "processes": len(ok), "windows": len(used), "steps": used["steps"].sum(),
        **step.columns("step_seconds"),
        "samples_per_second": trial["global_batch"] / step.value,
        "warm_up_windows": dropped,
        "repeated_on_nodes": len(grouped) if isinstance(grouped, bootstrap.OfNodes) else pd.NA,
        "settings": "; ".join(filter(None, dict.fromkeys(ok["settings"]))),
        "loss_first": ends.first().dropna().median(),
        "loss_last": ends.last().dropna().median(),
        **{error: processes[error].max() for error in ERRORS},
        **{column: ok[column].max() for column in LARGEST}, **counted.columns,
        "top1_agreement": ok["top1_agreement"].min(),
        **{column: ok[column].min() for column in OF_ANSWERS},
        # pandas 2 warns of a median of nothing but NaN.
        "first_call_seconds": ok["first_call_seconds"].dropna().median(),
        **evidence.columns(kernels, step.value, trial.get("ranks", 1)),
        "network_tx_bytes_per_step": counters.sent_per_step(campaign, name, dropped),
        **own.columns,
    }


class _OfKind(NamedTuple):
    """What inference, training to a target and training from files add to a row."""

    columns: dict[str, Any]
    against: list[str]
    remarks: list[str]


def _of_kind(campaign: Campaign, trial: dict[str, Any], dropped: int, step_seconds: float
             ) -> _OfKind:
    name, found = trial["trial"], _OfKind({}, [], [])
    if reader.infers(trial):
        found.columns.update(latency.columns(campaign, name, dropped))
        found.columns.update(latency.requests(campaign, name))
        found.columns.update(accuracy.lost(campaign, name))
        found.against.extend(latency.against(
            found.columns, step_seconds, trial["batch"], campaign.rows("server", name)))
        found.remarks.extend(latency.remarks(campaign, name, dropped))
    if reader.target_of(campaign):
        found.columns.update(accuracy.columns(campaign, name))
        share = found.columns["witness_share"]
        found.against.extend(accuracy.against(campaign, trial, share))
    if reader.reads_files(trial):
        found.columns.update(loading.columns(campaign, name))
        found.remarks.extend(loading.remarks(campaign, name))
    return found
