"""Sets what the models say beside what campaigns measured: predictions.csv, overlap.csv, what_if.csv and article.csv.

Reads campaigns and fits, returns DataFrames; docs/reference/records.md tells what each column means.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

import networks
from analysis.aggregation import links, overlap, strategies
from analysis.aggregation.links import Fit
from analysis.aggregation.strategies import Leg, Work
from analysis.records.reader import Campaign
from analysis.statistics.bootstrap import Estimate
from analysis.trials import counters, phases, summary
from networks import work

NETWORKS = ("fcn5", "alexnet", "resnet50", "lstm32")  # predicted where no campaign is given
WORKLOAD = ["framework", "release", "network", "batch", "precision", "tuning"]  # of what_if.csv, its first columns
FURTHER = ["data", "threads", "side"]  # what else makes a workload another one, among its last columns
SETTINGS = ["batch", "global_batch", "release", "precision", "tuning", *FURTHER]  # in which trials of a network may differ
TRIAL = ["framework", "network", "devices", "strategy", "wire"]  # what tables and plots say of every trial
COUNTED = ("nvlink_bytes_per_step", "pcie_rx_bytes_per_step", "pcie_tx_bytes_per_step")
APART_BY: Mapping[str, tuple[str, ...]] = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0")}
MEASURED = ("measured_seconds", "measured_seconds_low", "measured_seconds_high", "error", "swept_error", *COUNTED)
BEYOND = (8, 16)
OTHER_LINKS = {  # latency of a message in seconds, bytes a second and direction; assumed, not measured
    "PCIe 3 as in the article": (2e-5, 8e9), "PCIe 5, 16 lanes": (2e-5, 55e9), "25 Gb/s Ethernet": (5e-5, 25e9 / 8),
    "100 Gb/s InfiniBand": (1e-5, 100e9 / 8), "400 Gb/s InfiniBand": (1e-5, 400e9 / 8), "NVLink 4": (1e-5, 450e9),
}
NO_LINE = 2.0  # times between what a link's line and its points say of a transfer, above which the line is none
APART = 3.0  # times between what the fastest and the slowest process of a sweep took for as many bytes, likewise
ARTICLE_LINK, ONCE, WOULD_CARRY = "8 GB/s", "S once over the link", "what 0.0256 s would carry"  # of `article`
ARTICLE_SECONDS, ARTICLE_STEP_SECONDS, ARTICLE_BYTES_PER_SECOND, ARTICLE_DEVICES = 0.0256, 0.1, 8e9, 4


def wire_of(campaign: Campaign) -> str:
    """On which wire of links.csv a campaign ran."""
    return "p2p_off" if forced_apart(campaign.meta.get("variables") or {}) else "default"


def forced_apart(variables: Mapping[str, str]) -> str:
    """Name the variable that keeps GPUs from reaching one another directly; empty where none does."""
    return next((name for name, values in APART_BY.items() if variables.get(name) in values), "")


def of_networks(fits: Sequence[Fit]) -> pd.DataFrame:
    """Predict every strategy for `NETWORKS` on the groups of devices whose links were measured."""
    groups = dict.fromkeys((each.wire, each.devices) for each in fits if each.devices > 1)
    rows = [{"network": name, "devices": devices, "strategy": strategy, "wire": wire,
             **_predicted(strategy, _work(name, devices, strategy), links.chosen(fits, wire, devices))}
            for wire, devices in groups for name in NETWORKS for strategy in strategies.STRATEGIES
            if strategy not in ("all_reduce", "nccl")]  # other frameworks' words for ddp's
    return pd.DataFrame(rows)


def of_campaign(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Set the model's aggregation beside the measured one for every trial on several devices; `error` is predicted / measured - 1.

    `swept_error` is that of the links' measured points: the rest of `error` is how far their lines pass by them. Measured is the
    aggregation alone (variant A). Counters are of the whole step, all devices together. What a trial measured that is not verified
    speaks neither for the model nor against it, and is left out.
    """
    rows = []
    against = _against(campaign)
    for trial in _ran(campaign):
        strategy, wire, devices = trial["strategy"], wire_of(campaign), trial["devices"]
        row = {"campaign": campaign.meta["name"], "trial": trial["trial"], "framework": trial["framework"],
               "network": trial["network"], "devices": devices, "strategy": strategy, "wire": wire,
               **_predicted(strategy, _work(trial["network"], devices, strategy), links.chosen(fits, wire, devices))}
        if why := against[trial["trial"]]:
            rows.append(row | {"reason": f"not verified: {why}"})
            continue
        found = phases.of_trial(campaign, trial["trial"])["isolated"]
        row |= {"measured_seconds": found.value, "measured_seconds_low": found.low, "measured_seconds_high": found.high,
                "error": row["predicted_seconds"] / found.value - 1, "swept_error": row["swept_seconds"] / found.value - 1}
        counted = counters.of_trial(campaign, trial).columns
        row |= {column: counted.get(column, math.nan) for column in COUNTED}
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.reindex(columns=[*table.columns, *(column for column in MEASURED if column not in table)]) if rows else table


def overlaps(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Set the step of the layer-wise model beside the measured one, for every trial on several devices with phases.

    Forward, backward and update (never below zero, as noise may have it) are the trial's own; only the exposed aggregation is the
    model's.
    DistributedDataParallel copies gradients into its buckets and back, unless its tuned form lets them lie there.
    """
    rows = []
    for trial in several(campaign):
        strategy, devices = trial["strategy"], trial["devices"]
        chosen, parts = links.chosen(fits, wire_of(campaign), devices), phases.of_trial(campaign, trial["trial"])
        if strategies.missing(strategy, chosen) or not math.isfinite(parts["backward"].value):
            continue
        for grouping in ("whole",) if strategy in phases.AFTER_BACKWARD else overlap.GROUPINGS:
            found = _overlap(trial["network"], parts["backward"].value, grouping, _seconds(strategy, devices, chosen))
            exposed = found.exposed_seconds + _copies(trial, chosen)
            step = _alone(parts) + exposed
            rows.append({
                "campaign": campaign.meta["name"], "trial": trial["trial"], "framework": trial["framework"],
                "network": trial["network"], "devices": devices, "strategy": strategy, "wire": wire_of(campaign),
                "grouping": grouping,
                **{f"{name}_seconds": parts[name].value for name in ("forward", "backward", "update")},
                "aggregation_seconds": found.aggregation_seconds, "exposed_seconds": exposed,
                **_estimate("measured_exposed_seconds", parts["exposed"]), "step_seconds": step,
                **_estimate("measured_step_seconds", parts["step"]), "error": step / parts["step"].value - 1,
            })
    return pd.DataFrame(rows)


def with_settings(table: pd.DataFrame, campaigns: Sequence[Campaign]) -> pd.DataFrame:
    """Add `SETTINGS` of its trial to each row, which the files hold in the trial's name; a table without trials stays as it is."""
    if "trial" not in table:
        return table
    known = {(campaign.meta["name"], trial["trial"]): {**_further(trial), **trial}
             for campaign in campaigns for trial in campaign.trials}
    own = [known[key] for key in zip(table["campaign"], table["trial"], strict=True)]
    return table.assign(**{setting: [each[setting] for each in own] for setting in SETTINGS})


def telling(table: pd.DataFrame, shown: Sequence[str], settings: Sequence[str] = (*SETTINGS, "campaign")) -> list[str]:
    """Name those `settings` in which rows differ that are alike in all that is `shown` anyway.

    Only where a batch does not divide by the devices does `global_batch` tell more than `batch`.
    """
    def tells(setting: str) -> bool:
        alike = [column for column in (*shown, *(["batch"] if setting == "global_batch" else [])) if column in table]
        return bool((table.groupby(alike, dropna=False)[setting].nunique(dropna=False) > 1).any())

    return [setting for setting in settings if setting in table and tells(setting)]


def what_if(campaign: Campaign, fits: Sequence[Fit]) -> pd.DataFrame:
    """Predict weak scaling by ring all-reduce, in buckets behind the backward pass, on more devices and on other links.

    Forward, backward and update are those of the framework's trial with the default strategy on the most devices, of a CPU on the
    most that have cores of their own, and so are the copies of DistributedDataParallel, which no link makes shorter. This machine's
    link is that of the campaign's wire; its rows for as many devices as were measured have what was measured there, too.
    """
    wire = wire_of(campaign)
    ours = "this machine's" if wire == "default" else f"this machine's, {wire}"
    rows = []
    for own in _workloads(campaign):
        trial, parts = own[0]
        alone, shared = _alone(parts), _shared_cores(campaign, trial)
        chosen = links.chosen(fits, wire, trial["devices"])
        fitted, copies = chosen.get("all_reduce"), _copies(trial, chosen)
        candidates = {**({ours: bus(fitted)} if fitted else {}), **{link: (*each, 0.0) for link, each in OTHER_LINKS.items()}}
        there = {each[0]["devices"]: each for each in reversed(own)}  # the first of as many devices
        for name, (latency, bandwidth, floor) in candidates.items():
            for devices in sorted({2, 4, *BEYOND, *there}):
                ring = _ring_seconds(devices, latency, bandwidth, floor)
                found = _overlap(trial["network"], parts["backward"].value, "bucket", ring)
                exposed = found.exposed_seconds + copies
                step = alone + exposed
                measured = math.nan
                remarks = [f"computing was timed where {shared}, so efficiency comes out too high"] if shared else []
                if name == ours and devices in there:
                    other, timed = there[devices]
                    measured = _alone(timed) / timed["step"].value
                    if other is not trial and (crowded := _shared_cores(campaign, other)):
                        remarks.append(f"measured where {crowded}")
                rows.append({
                    "campaign": campaign.meta["name"], **{column: trial[column] for column in WORKLOAD}, "link": name,
                    "latency_seconds": latency, "bytes_per_second": bandwidth, "floor_seconds": floor, "devices": devices,
                    "step_seconds": step,
                    "exposed_seconds": exposed, "samples_per_second": trial["batch"] * devices / step,
                    "efficiency": alone / step, "measured_efficiency": measured, **_further(trial), "remark": "; ".join(remarks),
                })
    return pd.DataFrame(rows)


def article(fits: Sequence[Fit]) -> pd.DataFrame:
    """Derive the article's 0.0256 s for FCN-R's gradients (arXiv 1608.07249) under each assumption that could stand behind it.

    Its network is `fcn5`, its link PCIe 3 at 8 GB/s, its machine four GPUs. The last rows are this machine's fitted links.
    """
    size = work.parameter_bytes(networks.get("fcn5"))
    n, rate = ARTICLE_DEVICES, ARTICLE_BYTES_PER_SECOND
    assumed = {
        ONCE: size, "n devices one after another, one way": n * size,
        "ring: 2 (n - 1) / n S": 2 * (n - 1) / n * size, "tree: 2 log2(n) S": 2 * math.log2(n) * size,
        "gather and broadcast: 2 (n - 1) S": 2 * (n - 1) * size, "up and down for each device: 2 n S": 2 * n * size,
        WOULD_CARRY: ARTICLE_SECONDS * rate,
    }
    rows = [{"assumption": name, "link": ARTICLE_LINK, "devices": n, "bytes": moved, "seconds": moved / rate}
            for name, moved in assumed.items()]
    for wire, devices in dict.fromkeys((each.wire, each.devices) for each in fits if each.devices > 1):
        chosen = links.chosen(fits, wire, devices)
        for strategy in ("ddp", "ring", "tree", "gather", "host_one", "host_all"):
            if not strategies.missing(strategy, chosen):
                found = strategies.predict(strategy, Work(size, devices), chosen)
                rows.append({"assumption": strategy, "link": f"this machine's, {wire}", "devices": devices, "bytes": size,
                             "seconds": found.value, "seconds_low": found.low, "seconds_high": found.high})
    table = pd.DataFrame(rows, columns=["assumption", "link", "devices", "bytes", "seconds", "seconds_low", "seconds_high"])
    return table.assign(ratio=table["seconds"] / ARTICLE_SECONDS, share_of_step=table["seconds"] / ARTICLE_STEP_SECONDS)


def bus(fit: Fit) -> tuple[float, float, float]:
    """A ring's link that would give the fitted all-reduce of n devices: latency, bytes a second, and floor of a message."""
    n = fit.devices
    return fit.latency_seconds / (2 * (n - 1)), 2 * (n - 1) / n * fit.bytes_per_second, fit.floor_seconds / (2 * (n - 1))


def _predicted(strategy: str, gradients: Work, chosen: Mapping[str, Fit]) -> dict[str, Any]:
    known = strategies.STRATEGIES.get(strategy)
    legs = known.legs(gradients) if known else [Leg("unknown", 0, 0)]
    formula = known.textbook(gradients) if known else []
    return {"gradient_bytes": gradients.size_bytes, **_estimate("predicted_seconds", strategies.total(legs, chosen)),
            "legs": "; ".join(f"{link} {strategies.total(own, chosen).value:.3g}" for link, own in _by_link(legs).items())
            if known else "",
            "residual": max((chosen[leg.link].residual for leg in legs if leg.link in chosen), default=math.nan),
            "swept_seconds": strategies.swept(legs, chosen),
            "textbook_seconds": strategies.total(formula, chosen).value if formula else math.nan,
            "reason": strategies.missing(strategy, chosen) or "; ".join(filter(None, [
                _of_others(legs, gradients.devices, chosen), _beyond(legs, chosen), _no_line(legs, chosen)])),
            "wire_bytes": strategies.wire_bytes(strategy, gradients),
            "host_bytes": strategies.host_bytes(strategy, gradients)}


def _of_others(legs: Sequence[Leg], devices: int, chosen: Mapping[str, Fit]) -> str:
    """Say where the links were measured in a group of another size, the nearest one there is; empty where they were not."""
    others = sorted({chosen[leg.link].devices for leg in legs} - {devices})
    return f"predicted by links of {' and '.join(map(str, others))} devices" if others else ""


def _beyond(legs: Sequence[Leg], chosen: Mapping[str, Fit]) -> str:
    """Say which links carry more at once than their sweep did, so that their line is prolonged; empty where none does."""
    sizes = {link: max(leg.size_bytes / leg.messages for leg in own) for link, own in _by_link(legs).items()}
    said = [f"{link} {size / 2**20:.0f} MiB at once, swept up to {chosen[link].largest_bytes / 2**20:.0f}"
            for link, size in sizes.items() if size > chosen[link].largest_bytes]
    return f"beyond the sweep: {', '.join(said)}" if said else ""


def _no_line(legs: Sequence[Leg], chosen: Mapping[str, Fit]) -> str:
    """Say of which links no line holds at the sizes that they carry, with what their sweeps took; empty where all do."""
    said = []
    for link, leg in ((link, max(own, key=lambda leg: leg.size_bytes / leg.messages)) for link, own in _by_link(legs).items()):
        once = (1, leg.size_bytes / leg.messages)
        line, point, found = chosen[link].seconds(*once), chosen[link].swept_seconds(*once), chosen[link].seconds_by_process(*once)
        if found and max(found) > APART * min(found):
            said.append(f"{link}: processes took {1e3 * min(found):.3g} to {1e3 * max(found):.3g} ms for as many bytes")
        elif max(line, point) > NO_LINE * min(line, point):
            said.append(f"{link}: {1e3 * point:.3g} ms by its points, {1e3 * line:.3g} by the line")
    return f"no line follows {'; '.join(said)}" if said else ""


def _alone(parts: Mapping[str, Estimate]) -> float:
    """Seconds of a step without aggregation."""
    return parts["forward"].value + parts["backward"].value + max(0.0, parts["update"].value)


def _copies(trial: Mapping[str, Any], chosen: Mapping[str, Fit]) -> float:
    """Seconds in which DistributedDataParallel copies all gradients into its buckets and back, which its tuned form does not."""
    if not _bucketed(trial["strategy"]) or trial["tuning"] != "stock" or "device_copy" not in chosen:
        return 0.0
    return strategies.total([Leg("device_copy", 2, 2 * work.parameter_bytes(networks.get(trial["network"])))], chosen).value


def _bucketed(strategy: str) -> bool:
    return strategy in strategies.STRATEGIES and strategies.STRATEGIES[strategy].bucketed


def _by_link(legs: Sequence[Leg]) -> dict[str, list[Leg]]:
    return {link: [leg for leg in legs if leg.link == link] for link in dict.fromkeys(leg.link for leg in legs)}


def _estimate(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _work(network: str, devices: int, strategy: str) -> Work:
    described = networks.get(network)
    buckets = [each.size_bytes for each in overlap.gradients(described, 0.0, "bucket")] if _bucketed(strategy) else []
    return Work(work.parameter_bytes(described), devices, tuple(buckets))


def _seconds(strategy: str, devices: int, chosen: Mapping[str, Fit]) -> Any:
    return lambda size: strategies.predict(strategy, Work(size, devices), chosen).value


def _ring_seconds(devices: int, latency: float, bandwidth: float, floor: float) -> Any:
    messages = 2 * (devices - 1)
    return lambda size: max(messages * floor, messages * latency + messages / devices * size / bandwidth)


def _overlap(network: str, backward_seconds: float, grouping: str, seconds_of: Any) -> overlap.Overlap:
    sent = overlap.gradients(networks.get(network), backward_seconds, grouping)
    return overlap.overlap(sent, backward_seconds, seconds_of)


def several(campaign: Campaign) -> list[dict[str, Any]]:
    """The verified trials on several devices."""
    against = _against(campaign)
    return [trial for trial in _ran(campaign) if not against[trial["trial"]]]


def _ran(campaign: Campaign) -> list[dict[str, Any]]:
    """The trials on several devices of which a process ended well."""
    ok = set(campaign.processes.loc[campaign.processes["status"] == "ok", "trial"])
    return [trial for trial in campaign.trials if trial["devices"] > 1 and trial["trial"] in ok]


def _against(campaign: Campaign) -> dict[str, str]:
    """Why each trial is not verified; empty where it is."""
    rows = summary.summarise(campaign)
    reasons = rows["reason"].where(rows["verified"] != "yes", "")
    return dict(zip(rows["trial"], reasons, strict=True))


def _workloads(campaign: Campaign) -> list[list[tuple[dict[str, Any], dict[str, Estimate]]]]:
    """The trials of each workload with an overlapping strategy, and the parts of their steps, which were all timed.

    Those whose devices share no cores come first, then those on the most devices: sharing makes computing slower than it is.
    """
    found: dict[tuple[Any, ...], list[tuple[dict[str, Any], dict[str, Estimate]]]] = {}
    for trial in several(campaign):
        parts = phases.of_trial(campaign, trial["trial"])
        known = strategies.STRATEGIES.get(trial["strategy"])
        if known and known.default and math.isfinite(_alone(parts)):
            found.setdefault((*(trial[column] for column in WORKLOAD), *_further(trial).values()), []).append((trial, parts))
    return [sorted(own, key=lambda each: (bool(_shared_cores(campaign, each[0])), -each[0]["devices"])) for own in found.values()]


def _shared_cores(campaign: Campaign, trial: Mapping[str, Any]) -> str:
    """Say that a trial's devices share the cores of a CPU that has too few; empty where each has its own."""
    cores = (campaign.meta["machine"].get("cpu") or {}).get("allowed")
    shared = trial["device_kind"] == "cpu" and cores and trial["devices"] * trial["threads"] > cores
    return f"{trial['devices']} devices share {cores} cores" if shared else ""


def _further(trial: Mapping[str, Any]) -> dict[str, Any]:
    """`FURTHER` of a trial; only comparisons name a side."""
    return {column: trial.get(column, "") for column in FURTHER}
