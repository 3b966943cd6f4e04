"""Time to accuracy: how many epochs and seconds each seed of a trial took to the suite's target.

Trials of one network, batch, precision and data see the same weights and batches of each seed.
So they should need as many epochs; one that needs fewer trained otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.reader import Campaign, target_of
from analysis.statistics import permutation, proportions

ENDS = ("", "_least", "_most")
COLUMNS = ("target_accuracy", *(f"{name}_to_target{end}" for name in ("epochs", "seconds")
                                for end in ENDS), "witness_share")
# Of trained weights in inference.
LOST = ("accuracy_lost", "accuracy_lost_low", "accuracy_lost_high")
ALIKE = ("network", "global_batch", "precision", "data", "device_kind")
# Of the parameters, in at least one epoch of each process.
LEAST_SEEN = 0.5


def reached(campaign: Campaign, trial: str) -> pd.DataFrame:
    """Return the last epoch of each process that reached the target, a row a seed."""
    last = campaign.ok_rows("accuracy", trial).groupby("process", sort=True).tail(1)
    return last.set_index("seed").sort_index()


def columns(campaign: Campaign, trial: str) -> dict[str, Any]:
    """Return `COLUMNS`: the median over seeds, the least and the most."""
    last, rows = reached(campaign, trial), campaign.rows("accuracy", trial)
    found = {"target_accuracy": target_of(campaign).get("target"),
             "witness_share": rows.groupby("process")["witness_share"].max().min()}
    for name, column in (("epochs", "epoch"), ("seconds", "seconds")):
        values = last[column]
        for end, value in zip(ENDS, (values.median(), values.min(), values.max()), strict=True):
            found[f"{name}_to_target{end}"] = value
    return found


def against(campaign: Campaign, trial: Mapping[str, Any], share: float) -> list[str]:
    """Say why a trial that reached its target is not verified: its steps, or its fewer epochs."""
    reasons = []
    if not share >= LEAST_SEEN:
        reasons.append("witness: no epoch of a process showed the steps of at least half of the "
                       "parameters")
    for peers in groups(campaign):
        names = [each["trial"] for each in peers]
        if trial["trial"] in names:
            reasons += _fewer(epochs(campaign, names), trial["trial"])
    return reasons


def groups(campaign: Campaign) -> Iterator[list[dict[str, Any]]]:
    """Yield trials that should need the same number of epochs, if they are two or more."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for trial in campaign.trials:
        if len(reached(campaign, trial["trial"])):
            found.setdefault(tuple(trial[key] for key in ALIKE), []).append(trial)
    yield from (trials for trials in found.values() if len(trials) > 1)


def epochs(campaign: Campaign, trials: Sequence[str]) -> pd.DataFrame:
    """Return the epochs to the target: a row a seed that all trials reached, a column a trial."""
    table = pd.DataFrame({trial: reached(campaign, trial)["epoch"] for trial in trials})
    return table.dropna().astype(int)


def sentence(table: pd.DataFrame) -> str:
    """Say whether the trials of a table of `epochs` need the same number, and how sure that is."""
    if not len(table):
        return "No seed reached the target in all rows, so their epochs are not compared."
    test = permutation.alike(table.to_numpy())
    means = table.mean()
    seeds = f"{len(table)} seed{'s' if len(table) > 1 else ''}"
    proof = f"permutation test within {seeds}, p = {test.p:.2g}"
    most = f"{means.max() - means.min():.2g}"
    apart = f"their means are at most {most} epoch{'' if most == '1' else 's'} apart"
    if test.least > permutation.ALPHA:
        return (f"Too few seeds to tell whether the rows need the same number of epochs: {apart}, "
                f"and no difference in {seeds} could give less than p = {test.least:.2g}.")
    if test.p <= permutation.ALPHA:
        return f"The rows do not need the same number of epochs: {apart} ({proof})."
    return (f"The rows need the same number of epochs as far as this shows: {apart} ({proof}; "
            f"a difference in every seed could give p = {test.least:.2g}).")


def _fewer(table: pd.DataFrame, trial: str) -> list[str]:
    """Say that a trial needs fewer epochs than each other one, if chance does not explain it.

    Of two trials that differ, both are named: a third one would tell which of them is wrong.
    """
    others = [name for name in table if name != trial]
    if not len(table) or not others:
        return []
    own = table[trial].to_numpy()
    p = max(permutation.fewer(own, table[other].to_numpy()) for other in others)
    least = min(table[other].mean() for other in others)
    if p <= permutation.ALPHA:
        return ["converges in fewer epochs than all other rows on the same seeds: "
                f"{own.mean():.3g} in the mean, the others {least:.3g} or more "
                f"(permutation test, p = {p:.2g})"]
    p = permutation.fewer(table[others[0]].to_numpy(), own)
    if len(others) == 1 and p <= permutation.ALPHA:
        return ["converges in more epochs than the only other row on the same seeds: "
                f"{own.mean():.3g} in the mean for {least:.3g} (permutation test, p = {p:.2g}); "
                "nothing tells which is right"]
    return []


def lost(campaign: Campaign, trial: str) -> dict[str, Any]:
    """Return `LOST` of a trial in inference: the reference's share of right answers less its own.

    Of the process with the fewest right answers. The interval is that of a difference of shares on
    the same samples. Empty without answers.
    """
    rows = campaign.ok_rows("answers", trial)
    if not len(rows):
        return {}
    right = rows["answer"] == rows["label"]
    own = rows[rows["process"] == right.groupby(rows["process"]).mean().idxmin()]
    one, other = ((own[name] == own["label"]).to_numpy() for name in ("reference", "answer"))
    return dict(zip(LOST, proportions.paired_difference(one, other), strict=True))


def curves(campaign: Campaign, trial: str) -> list[tuple[np.ndarray, ...]]:
    """Return steps, seconds and test accuracies of each process."""
    rows = campaign.rows("accuracy", trial)
    return [tuple(own[name].to_numpy() for name in ("step", "seconds", "test_accuracy"))
            for _, own in rows.groupby("process")]
