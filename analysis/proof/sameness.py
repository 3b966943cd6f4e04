"""Decides which trials are proved to train the same network; only these are ranked.

A trial is verified when all of this holds: its proof said `same`, and could have seen a runner that
trains nothing; the framework built the right number of parameters; the losses of its processes
agree. Losses that differ from a peer's are a remark, because each row has its own proof. In
campaigns of earlier releases one worker proved a whole trial. There losses have to agree with those
of most peers.

Peers have equal network, global batch, device kind, precision and data. With batch norm they have
equal devices too, because each device normalises its own samples. With a lossy strategy, peers also
share the framework, strategy and number of devices.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import networks
from analysis.proof.tolerances import CHAOS, DROPOUT_LOSS, kinks_of, loss_tolerance
from analysis.records.columns import STRENGTH
from analysis.records.reader import Campaign, infers, target_of
from analysis.strategies import table as strategies

PEERS = ("network", "device_kind", "precision", "data")
# Share of the first loss: below it a loss is noise and relative differences mean nothing.
FLOOR = 0.05

# Loss by last_step.
Curve = pd.Series


@dataclass(frozen=True)
class Judged:
    """Why a trial is not verified, or nothing, and remarks on the comparison of its losses."""

    reasons: list[str]
    remarks: list[str]


def judge(campaign: Campaign) -> dict[str, Judged]:
    """Judge each trial with an ok process."""
    finished = set(campaign.processes.loc[campaign.processes["status"] == "ok", "trial"])
    trials = [trial for trial in campaign.trials if trial["trial"] in finished]
    losses = {trial["trial"]: _losses(campaign, trial["trial"]) for trial in trials}
    judged = {trial["trial"]: _alone(campaign, trial, losses[trial["trial"]]) for trial in trials}
    if target_of(campaign):
        return judged
    each = campaign.proves_each_process
    curves = {name: own.median(axis=1) for name, own in losses.items()}
    for peers in _groups(trial for trial in trials if not infers(trial)):
        sound = [trial for trial in peers if not judged[trial["trial"]].reasons
                 and not (each and trial.get("dropout"))]
        apart = _disagreements(sound, curves)
        if each:
            for name, remark in _remarks(sound, apart).items():
                judged[name].remarks.append(remark)
        else:
            for name, reason in _outvoted(sound, apart).items():
                judged[name].reasons.append(reason)
    return judged


def _alone(campaign: Campaign, trial: Mapping[str, Any], losses: pd.DataFrame) -> Judged:
    """Judge a trial without its peers: its proof, its parameters, its processes' losses."""
    processes = campaign.rows("processes", trial["trial"])
    proven = processes[processes["status"] == "ok"]
    reasons = _check(processes)
    if infers(trial):
        # It has no loss. The limit that its proof had says what it could see.
        return Judged([*reasons, *_parameters(proven, trial)], [])
    each, dropout = campaign.proves_each_process, bool(trial.get("dropout"))
    if not reasons and (each or target_of(campaign)):
        reasons = _unproven(proven)
    reasons = [*reasons, *_parameters(proven, trial)]
    if target_of(campaign):
        # Each process is a seed of its own, so their losses need not agree.
        return Judged(reasons, [])
    compared = not (each and dropout)
    return Judged([*reasons, *(_processes(losses, trial) if compared else [])],
                  [*(_dropout(compared) if dropout else []), *_not_compared(proven)])


def loss_curve(campaign: Campaign, trial: str) -> Curve:
    """Return the median loss over a trial's processes that ended well, by step."""
    return _losses(campaign, trial).median(axis=1)


def _losses(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the losses of processes that ended well: a row a step and a column a process."""
    windows = campaign.ok_rows("windows", trial)
    return windows.pivot_table(index="last_step", columns="process", values="loss")


def unlike(strategy: str, other: str) -> str:
    """Return why losses under two strategies are not expected to agree, or ""."""
    lossy = [name for name in (strategy, other) if strategies.of(name).lossy]
    if strategy == other or not lossy:
        return ""
    if len(lossy) == 2:
        return (f"{strategy} and {other} leave out different parts of the gradients, "
                "so their losses are not expected to agree")
    whole = other if strategies.of(strategy).lossy else strategy
    return f"{lossy[0]} sends less than {whole}, so their losses are not expected to agree"


def disagreement(curve: Curve, other: Curve, *trials: Mapping[str, Any]) -> str:
    """Return where two loss curves differ by more than the widest limit of `trials`, or "".

    The distance at a common step is |a - b| / max(|a|, |b|, FLOOR x the first loss). Where rounding
    has made training chaotic, only the medians of those losses are compared, within CHAOS x the
    first loss. With dropout only the first loss is, within DROPOUT_LOSS: every framework drops
    other units.
    """
    steps = curve.index.intersection(other.index)
    dropout = any(trial.get("dropout") for trial in trials)
    if dropout:
        steps = steps[steps == 1]
    if steps.empty:
        return "no step at which both recorded a loss"
    a, b = curve.loc[steps].to_numpy(), other.loc[steps].to_numpy()
    first = max(abs(curve.iloc[0]), abs(other.iloc[0]))
    distances = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), FLOOR * first)
    kinks = [kinks_of(trial["network"], trial["strategy"]) for trial in trials]
    allowed = np.max([loss_tolerance(trial["precision"], steps, count)
                      for trial, count in zip(trials, kinks, strict=True)], axis=0)
    if dropout:
        allowed = np.full(len(steps), DROPOUT_LOSS)
    late = allowed > CHAOS
    # Written so that nan counts as apart.
    apart = np.flatnonzero(~late & ~(distances <= allowed))
    if len(apart):
        at = apart[0]
        return (f"loss {a[at]:.6g} for {b[at]:.6g} at step {steps[at]}: "
                f"{100 * distances[at]:.2g} % apart, {100 * allowed[at]:.2g} % allowed")
    if late.any() and not abs(np.median(a[late]) - np.median(b[late])) <= CHAOS * first:
        return (f"median loss {np.median(a[late]):.3g} for {np.median(b[late]):.3g} "
                f"from step {steps[late][0]} on, where {CHAOS * first:.3g} apart is allowed")
    return ""


def _check(processes: pd.DataFrame) -> list[str]:
    different = processes[processes["check"] == "different"]
    if len(different):
        reason = different["check_reason"].iloc[0] or "its check gave no reason"
        return [f"different from the reference: {reason}"]
    failed = processes[processes["status"] == "failed"]
    refused = failed[failed["reason"].str.startswith("different")]
    if len(refused):
        return [refused["reason"].iloc[0]]
    if not (processes["check"] == "same").any():
        return ["no check against the reference was made"]
    return []


def _unproven(processes: pd.DataFrame) -> list[str]:
    """Say if a proof would have passed a runner that trains nothing; the weakest proof counts."""
    rate, frozen, _ = strength = [processes[column].max() for column in STRENGTH]
    if np.isnan(strength).all():
        return ["unproven: the records do not say what the proof could see"]
    # Written so that nan counts as blind.
    if not (rate < 1 or frozen < 1):
        return ["unproven: the proof could not have seen a runner that trains nothing"]
    return []


def _dropout(compared: bool) -> list[str]:
    if compared:
        return ["dropout: losses compared at the first step only, "
                f"within {100 * DROPOUT_LOSS:.0f} %"]
    return ["dropout: losses not compared with those of other rows, which drop other units"]


def _not_compared(proven: pd.DataFrame) -> list[str]:
    """Return what a proof that said `same` could not compare."""
    said = proven.loc[proven["check"] == "same", "check_reason"]
    return [reason for reason in said.fillna("").unique()[:1] if reason]


def _parameters(processes: pd.DataFrame, trial: Mapping[str, Any]) -> list[str]:
    wrong = processes[processes["parameters"] != trial["parameters"]]
    if wrong.empty:
        return []
    built = wrong["parameters"].iloc[0]
    counted = "an unknown number of" if np.isnan(built) else f"{built:,.0f}"
    return [f"built {counted} parameters, {trial['network']} has {trial['parameters']:,}"]


def _processes(losses: pd.DataFrame, trial: Mapping[str, Any]) -> list[str]:
    """Compare each process with the median of all."""
    middle = losses.median(axis=1)
    for process in losses:
        found = disagreement(losses[process].dropna(), middle, trial)
        if found:
            return [f"process {process} strays from the trial's other processes: {found}"]
    return []


def _groups(trials: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for trial in trials:
        known = strategies.of(trial["strategy"])
        lossy = (trial["framework"], trial["strategy"]) if known.lossy else None
        split = trial["devices"] if lossy or has_batch_norm(trial["network"]) else 0
        key = (*(trial[key] for key in PEERS), trial["global_batch"], split, lossy)
        groups.setdefault(key, []).append(trial)
    return list(groups.values())


def has_batch_norm(network: str) -> bool:
    """Return whether a network has batch norm; an unknown network counts as having it."""
    described = networks.known(network)
    return described is None or described.has_batch_norm


def _disagreements(peers: Sequence[Mapping[str, Any]],
                   curves: Mapping[str, Curve]) -> dict[str, dict[str, str]]:
    """Return where the losses of each peer differ from those of each, "" where they agree."""
    return {trial["trial"]: {
        other["trial"]: disagreement(curves[trial["trial"]], curves[other["trial"]], trial, other)
        for other in peers} for trial in peers}


def _remarks(peers: Sequence[Mapping[str, Any]],
             found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Name a peer whose losses differ, and where."""
    labels = {trial["trial"]: _label(trial) for trial in peers}
    remarks = {}
    for name, texts in found.items():
        apart = [(other, text) for other, text in texts.items() if text]
        if apart:
            other, text = apart[0]
            several = f"{len(apart)} of {len(peers) - 1} peers, such as " if len(apart) > 1 else ""
            remarks[name] = f"losses do not agree with those of {several}{labels[other]}: {text}"
    return remarks


def _outvoted(peers: Sequence[Mapping[str, Any]],
              found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return why peers do not agree with more than half of all peers, themselves included.

    So of three, one that strays is named; of two that disagree, neither is believed.
    """
    believed = {name for name, texts in found.items()
                if 2 * sum(not text for text in texts.values()) > len(peers)}
    labels = {trial["trial"]: _label(trial) for trial in peers}
    reasons = {}
    for name in found.keys() - believed:
        other, text = next((other, text) for other, text in found[name].items() if text)
        reasons[name] = (
            f"strays from {len(believed)} of its {len(peers)} peers, such as {labels[other]}: "
            f"{text}" if believed else
            f"disagrees with {labels[other]}, and nothing says which is right: {text}")
    return reasons


def _label(trial: Mapping[str, Any]) -> str:
    several = f"on {trial['devices']} devices" if trial["devices"] > 1 else ""
    strategy = trial["strategy"]
    words = [trial["framework"], trial["release"], trial["tuning"], several,
             strategy and f"with {strategy}"]
    return " ".join(filter(None, words))
