"""Compares the models with what campaigns measured.

Makes the tables predictions.csv and overlap.csv of campaigns and fits.
docs/reference/records.md explains their columns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

import networks
from analysis.aggregation import links, overlap, times
from analysis.aggregation.links import Fit
from analysis.records.reader import Campaign
from analysis.records.study_reader import NODES, ONE_BY_ONE, own_sum
from analysis.statistics.bootstrap import NOT_MEASURED, Estimate
from analysis.strategies import table as strategies
from analysis.strategies.facts import Leg, Work
from analysis.trials import phases, summary
from networks import work

# Predicted where no campaign is given.
NETWORKS = ("fcn5", "alexnet", "resnet50", "lstm32")
# The columns of what_if.csv that name a workload: its first ones, and some of its last ones.
WORKLOAD = ["framework", "release", "network", "batch", "precision", "tuning"]
FURTHER = ["data", "threads", "side"]
# Trials of one network may differ in these.
SETTINGS = ["batch", "global_batch", "release", "precision", "tuning", *FURTHER]
# Tables and plots name every trial by these.
TRIAL = ["framework", "network", "devices", "strategy", "wire"]
COUNTED = ("nvlink_bytes_per_step", "pcie_rx_bytes_per_step", "pcie_tx_bytes_per_step")
APART_BY: Mapping[str, tuple[str, ...]] = {"NCCL_P2P_DISABLE": ("1",),
                                           "NCCL_P2P_LEVEL": ("LOC", "0")}
MEASURED = ("measured_seconds", "measured_seconds_low", "measured_seconds_high", "error",
            "swept_error", *COUNTED)
# No line describes a link if one transfer takes more times as long by the line as by the measured
# points, or by these as by the line.
NO_LINE = 2.0
# Nor does one if it takes so many times as long in the slowest process as in the fastest.
APART = 3.0


def wire_of(campaign: Campaign, trial: Mapping[str, Any]) -> str:
    """Name the wire of links.csv on which a trial of a campaign ran."""
    if trial.get("nodes", 1) > 1:
        return NODES
    return "p2p_off" if forced_apart(campaign.meta.get("variables") or {}) else "default"


def forced_apart(variables: Mapping[str, str]) -> str:
    """Name the variable that turns off direct transfers between GPUs, or return ""."""
    return next((name for name, values in APART_BY.items() if variables.get(name) in values), "")


def of_networks(fits: Sequence[Fit]) -> pd.DataFrame:
    """Predict each strategy for `NETWORKS` on the groups of devices whose links were measured."""
    groups = dict.fromkeys((each.wire, each.devices) for each in fits if each.devices > 1)
    # "all_reduce" and "nccl" are what other frameworks call ddp.
    known = [name for name, each in strategies.STRATEGIES.items()
             if each.legs and name not in ("all_reduce", "nccl")]
    return pd.DataFrame([
        {"network": name, "devices": devices, "strategy": strategy, "wire": wire,
         **_predicted(strategy, _work(name, devices, strategy), links.chosen(fits, wire, devices))}
        for wire, devices in groups for name in NETWORKS for strategy in known])


def of_campaign(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Compare predicted and measured aggregation for each trial on several devices.

    `error` is predicted / measured - 1. `swept_error` is the same for a prediction from the links'
    measured points; the difference is the error of the fitted lines. Measured is the aggregation
    alone (variant A). Counters cover the whole step and all devices. A trial that is not verified
    gets a reason instead of measurements.
    """
    rows = []
    against, derived = _against(campaign), _derived(campaign)
    for trial in _ran(campaign):
        chosen = links.chosen(fits, wire_of(campaign, trial), trial["devices"])
        gradients = _work(trial["network"], trial["devices"], trial["strategy"])
        row = _named(campaign, trial) | _predicted(
            trial["strategy"], gradients, chosen, own_legs(trial, gradients, chosen))
        if why := against[trial["trial"]]:
            rows.append(row | {"reason": f"not verified: {why}"})
            continue
        found = phases.of_trial(campaign, trial["trial"])["isolated"]
        counted = derived.loc[trial["trial"]]
        known = strategies.of(trial["strategy"])
        if known.divides:
            row |= {"wire_bytes": strategies.step_bytes(trial, counted["settings"]),
                    "host_bytes": 0.0, "reason": known.without}
        rows.append({**row, **found.columns("measured_seconds"),
                     "error": row["predicted_seconds"] / found.value - 1,
                     "swept_error": row["swept_seconds"] / found.value - 1,
                     **{column: counted[column] for column in COUNTED}})
    table = pd.DataFrame(rows)
    missing = [column for column in MEASURED if column not in table]
    return table.reindex(columns=[*table.columns, *missing]) if rows else table


def overlaps(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Compare the layer-wise model's step with the measured one, for trials with phases.

    Forward, backward and update are the trial's own; noise may make update negative, which counts
    as zero. Only the exposed aggregation is the model's. DistributedDataParallel copies gradients
    into its buckets and back, unless its tuned form keeps them there.
    """
    rows = []
    for trial in several(campaign):
        strategy, devices = trial["strategy"], trial["devices"]
        chosen = links.chosen(fits, wire_of(campaign, trial), devices)
        parts = phases.of_trial(campaign, trial["trial"])
        backward = parts["backward"].value
        if times.missing(strategy, chosen) or not math.isfinite(backward):
            continue
        waits = strategies.of(strategy).after_backward
        for grouping in ("whole",) if waits else overlap.GROUPINGS:
            found = overlapped(trial["network"], backward, grouping,
                               _seconds(strategy, devices, chosen))
            exposed = found.exposed_seconds + copies_seconds(trial, chosen)
            step = alone_seconds(parts) + exposed
            rows.append({
                **_named(campaign, trial), "grouping": grouping,
                **{f"{name}_seconds": parts[name].value
                   for name in ("forward", "backward", "update")},
                "aggregation_seconds": found.aggregation_seconds, "exposed_seconds": exposed,
                **parts["exposed"].columns("measured_exposed_seconds"), "step_seconds": step,
                **parts["step"].columns("measured_step_seconds"),
                "error": step / parts["step"].value - 1,
            })
    return pd.DataFrame(rows)


def with_settings(table: pd.DataFrame, campaigns: Sequence[Campaign]) -> pd.DataFrame:
    """Add the `SETTINGS` of its trial to each row; a table without trials stays as it is."""
    if "trial" not in table:
        return table
    known = {(campaign.meta["name"], trial["trial"]): {**further(trial), **trial}
             for campaign in campaigns for trial in campaign.trials}
    own = [known[key] for key in zip(table["campaign"], table["trial"], strict=True)]
    return table.assign(**{setting: [each[setting] for each in own] for setting in SETTINGS})


def telling(table: pd.DataFrame, shown: Sequence[str],
            settings: Sequence[str] = (*SETTINGS, "campaign")) -> list[str]:
    """Name the `settings` in which rows differ whose `shown` columns are equal.

    `global_batch` counts only if it differs between rows with the same `batch`: where a batch does
    not divide by the devices.
    """
    def tells(setting: str) -> bool:
        alike = [*shown, *(["batch"] if setting == "global_batch" else [])]
        groups = table.groupby([column for column in alike if column in table], dropna=False)
        return bool((groups[setting].nunique(dropna=False) > 1).any())

    return [setting for setting in settings if setting in table and tells(setting)]


def several(campaign: Campaign) -> list[dict[str, Any]]:
    """Return the verified trials on several devices."""
    against = _against(campaign)
    return [trial for trial in _ran(campaign) if not against[trial["trial"]]]


def _named(campaign: Campaign, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that name the trial of a row."""
    return {"campaign": campaign.meta["name"],
            **{column: trial[column]
               for column in ("trial", "framework", "network", "devices", "strategy")},
            "wire": wire_of(campaign, trial)}


def own_legs(trial: Mapping[str, Any], gradients: Work, chosen: Mapping[str, Fit]) -> list[Leg]:
    """Return the legs of a framework whose own sum over nodes was swept; [] where it was not.

    TensorFlow and Paddle pack all gradients into one message. XLA sums each tensor by itself, and
    small messages wait while large ones are sent, so all of them count as one leg. (Eight of 340 KB
    together took 25 to 31 ms at 1 Gbit/s and at 200 Mbit/s: two nodes, jax 0.10.2, gloo.)
    """
    link = own_sum(trial["framework"])
    if link not in chosen or trial.get("nodes", 1) == 1:
        return []
    tensors = len(networks.get(trial["network"]).parameter_shapes)
    messages = tensors if trial["framework"] in ONE_BY_ONE else 1
    return [Leg(link, messages, gradients.size_bytes)]


def _predicted(strategy: str, gradients: Work, chosen: Mapping[str, Fit],
               own: Sequence[Leg] = ()) -> dict[str, Any]:
    """Return the columns of a prediction; `own` legs take the place of the strategy's."""
    known = strategies.of(strategy)
    legs = list(own) or (known.legs(gradients) if known.legs else [])
    formula = [] if own else known.textbook(gradients)
    missing = "" if own else times.missing(strategy, chosen)
    remarks = () if missing else (_of_others(legs, gradients.devices, chosen),
                                  _beyond(legs, chosen), _no_line(legs, chosen))
    return {
        "gradient_bytes": gradients.size_bytes,
        **(times.total(legs, chosen) if legs else NOT_MEASURED).columns("predicted_seconds"),
        "legs": "; ".join(f"{link} {times.total(of_link, chosen).value:.3g}"
                          for link, of_link in _by_link(legs).items()),
        "residual": max((chosen[leg.link].residual for leg in legs if leg.link in chosen),
                        default=math.nan),
        "swept_seconds": times.swept(legs, chosen) if legs else math.nan,
        "textbook_seconds": times.total(formula, chosen).value if formula else math.nan,
        "reason": missing or "; ".join(filter(None, remarks)),
        "wire_bytes": strategies.wire_bytes(strategy, gradients),
        "host_bytes": strategies.host_bytes(strategy, gradients),
    }


def _of_others(legs: Sequence[Leg], devices: int, chosen: Mapping[str, Fit]) -> str:
    """Say which other sizes of group the links were measured in; empty if in none."""
    others = sorted({chosen[leg.link].devices for leg in legs} - {devices})
    return f"predicted by links of {' and '.join(map(str, others))} devices" if others else ""


def _beyond(legs: Sequence[Leg], chosen: Mapping[str, Fit]) -> str:
    """Say which links carry larger messages than their sweep did: the line is extrapolated."""
    sizes = {link: _largest(own) for link, own in _by_link(legs).items()}
    said = [f"{link} {size / 2**20:.0f} MiB at once, "
            f"swept up to {chosen[link].largest_bytes / 2**20:.0f}"
            for link, size in sizes.items() if size > chosen[link].largest_bytes]
    return f"beyond the sweep: {', '.join(said)}" if said else ""


def _no_line(legs: Sequence[Leg], chosen: Mapping[str, Fit]) -> str:
    """Say which links no line describes at the sizes that they carry, and what was measured."""
    said = []
    for link, own in _by_link(legs).items():
        fit, size = chosen[link], _largest(own)
        line, point = fit.seconds(1, size), fit.swept_seconds(1, size)
        found = fit.seconds_by_process(1, size)
        if found and max(found) > APART * min(found):
            said.append(f"{link}: processes took {1e3 * min(found):.3g} to "
                        f"{1e3 * max(found):.3g} ms for as many bytes")
        elif max(line, point) > NO_LINE * min(line, point):
            said.append(f"{link}: {1e3 * point:.3g} ms by its points, {1e3 * line:.3g} by the line")
    return f"no line follows {'; '.join(said)}" if said else ""


def _largest(legs: Sequence[Leg]) -> float:
    """Return the bytes of the largest message."""
    return max(leg.size_bytes / leg.messages for leg in legs)


def alone_seconds(parts: Mapping[str, Estimate]) -> float:
    """Return the seconds of a step without aggregation."""
    return parts["forward"].value + parts["backward"].value + max(0.0, parts["update"].value)


def copies_seconds(trial: Mapping[str, Any], chosen: Mapping[str, Fit]) -> float:
    """Return how long stock DistributedDataParallel copies gradients to its buckets and back."""
    if (not strategies.of(trial["strategy"]).bucketed or trial["tuning"] != "stock"
            or "device_copy" not in chosen):
        return 0.0
    size = work.parameter_bytes(networks.get(trial["network"]))
    return times.total([Leg("device_copy", 2, 2 * size)], chosen).value


def _by_link(legs: Sequence[Leg]) -> dict[str, list[Leg]]:
    found: dict[str, list[Leg]] = {}
    for leg in legs:
        found.setdefault(leg.link, []).append(leg)
    return found


def _work(network: str, devices: int, strategy: str) -> Work:
    described = networks.get(network)
    bucketed = strategies.of(strategy).bucketed
    sent = overlap.gradients(described, 0.0, "bucket") if bucketed else []
    return Work(work.parameter_bytes(described), devices, tuple(each.size_bytes for each in sent))


def _seconds(strategy: str, devices: int, chosen: Mapping[str, Fit]) -> Callable[[float], float]:
    return lambda size: times.predict(strategy, Work(size, devices), chosen).value


def overlapped(network: str, backward_seconds: float, grouping: str,
               seconds_of: Callable[[float], float]) -> overlap.Overlap:
    """Model how a network's backward pass hides messages; `seconds_of` takes their bytes."""
    sent = overlap.gradients(networks.get(network), backward_seconds, grouping)
    return overlap.overlap(sent, backward_seconds, seconds_of)


def _ran(campaign: Campaign) -> list[dict[str, Any]]:
    """Return the trials on several devices in which at least one process succeeded."""
    ok = set(campaign.processes.loc[campaign.processes["status"] == "ok", "trial"])
    return [trial for trial in campaign.trials if trial["devices"] > 1 and trial["trial"] in ok]


def _against(campaign: Campaign) -> dict[str, str]:
    """Return why each trial is not verified; empty where it is."""
    rows = _derived(campaign)
    return dict(rows["reason"].where(rows["verified"] != "yes", ""))


@lru_cache(maxsize=8)
def _derived(campaign: Campaign) -> pd.DataFrame:
    """Return the rows of trials.csv by trial; cached, because three tables need them."""
    return summary.summarise(campaign).set_index("trial")


def further(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `FURTHER` columns of a trial; only comparisons name a side."""
    return {column: trial.get(column, "") for column in FURTHER}
