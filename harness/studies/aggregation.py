"""`dlbench study aggregation`: what moving gradients between devices takes, on links measured here, beside what campaigns measured.

It plans groups of devices, lets `harness.studies.link_sweep` measure their links, and hands the folder to `analysis.aggregation.report`.
"""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.records import manifest, reader
from harness.campaign import campaign as campaigns
from harness.campaign.session import Plan, build_environments
from harness.cli.compare import AllowDirty, Interpreter, Out
from harness.cli.options import Device, Processes, WindowSeconds, say
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.machine.preflight import pass_gate
from harness.plan.suite import Suite
from harness.studies.link_sweep import Effort, groups_of, sweep

LARGEST_MIB = {"cpu": 64, "cuda": 256}
Campaigns = Annotated[list[Path] | None, typer.Argument(metavar="[CAMPAIGN]...", help="Recorded campaigns on several devices, "
                                                        "whose aggregation is to be explained.")]


def aggregation(
    recorded: Campaigns = None,
    devices: Annotated[str, typer.Option(help="Numbers of devices with commas; default: 1, 2, 4 ... of those that are here.")] = "",
    device: Device = "auto",
    processes: Processes = 3,
    windows: Annotated[int, typer.Option(min=1, help="Timed windows of a transfer in a process.")] = 5,
    window_seconds: WindowSeconds = 0.02,
    largest: Annotated[int | None, typer.Option(min=1, metavar="MIB", help="Largest transfer; default 256 between GPUs, 64 on a "
                                                "CPU.")] = None,
    again: Annotated[Path | None, typer.Option("--again", metavar="DIR", help="Measure nothing: derive the study in DIR anew from "
                                               "its links, with these campaigns.")] = None,
    out: Out = None,
    allow_dirty: AllowDirty = False,
    interpreter: Interpreter = None,
) -> None:
    """Fit latency and bandwidth of this machine's links, and predict each strategy of gradient aggregation from them."""
    if again:
        _refuse_what_measures(devices=devices, device=device != "auto", processes=processes != 3, windows=windows != 5,
                              window_seconds=window_seconds != 0.02, largest=largest, out=out, allow_dirty=allow_dirty,
                              interpreter=interpreter)
        _derive(again, recorded or [])
        return
    efforts = {"processes": processes, "windows": windows, "window_seconds": window_seconds or 1e-6}  # a suite's are above 0
    campaign = _plan(devices, device, interpreter, efforts)
    effort = Effort(processes, windows, window_seconds, (largest or LARGEST_MIB[campaign.device_kind]) * 2**20)
    folder = out or Path("results") / f"aggregation-{datetime.now():%Y%m%d-%H%M%S}"
    if (folder / "study.json").exists():
        raise WrongUse(f"{folder} holds a study already: name another folder with --out, or derive it anew with --again {folder}")
    _refuse_forced_wire(campaign.device_kind)
    _refuse_useless(recorded or [], campaign.device_kind)  # which would end the study after all is measured
    if not any(trial.status == "planned" for trial in campaign.trials):
        reasons = "; ".join(dict.fromkeys(trial.reason for trial in campaign.trials))
        raise WrongUse(f"no group of devices can be measured here: {reasons}; choose others with --devices and --device")
    dirty = pass_gate(campaign.machine, campaign.gpus, allow_dirty)
    ready = build_environments(campaign, say)
    groups = groups_of(campaign.trials)
    say(f"{len(groups)} groups of devices in {processes} processes, records in {folder}")
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    settings = {"devices": [trial.devices for trial in campaign.trials], "largest_mib": effort.largest_bytes // 2**20}
    _update(folder, {**campaigns.first_page(campaign, folder, ready), "study": "aggregation", "effort": asdict(effort),
                     "settings": settings, "dirty": dirty})
    sweep(groups, next(iter(ready.values())), effort, folder, say)
    _update(folder, {"finished": datetime.now(UTC).isoformat(timespec="seconds")})
    _derive(folder, recorded or [])


def _refuse_what_measures(**options: Any) -> None:
    """Refuse options beside --again, which would be passed over in silence while the study that it names is written anew."""
    named = ", ".join(f"--{name.replace('_', '-')}" for name, value in options.items() if value)
    if named:
        raise WrongUse(f"--again derives a study anew in its own folder and measures nothing, so {named} cannot go with it: leave "
                       "that away, or copy the folder and derive the copy")


def _plan(devices: str, device: str, interpreter: list[str] | None, effort: dict[str, Any]) -> Plan:
    """Plan groups as trials of PyTorch: how many threads a rank has, and why a group cannot be, is decided as for a campaign."""
    wanted: dict[str, Any] = {"title": "Links", "frameworks": ["pytorch"], "networks": ["tiny_fcn"], "device": device,
                              "data": "device", "interpreters": named(interpreter), **effort}
    here = campaigns.prepare(Suite.model_validate(wanted), "")
    most = len(here.machine["gpus"]) if here.device_kind == "cuda" else len(os.sched_getaffinity(0))
    counts = devices or ",".join(str(2**power) for power in range(max(1, most).bit_length()))
    try:
        suite = Suite.model_validate({**wanted, "devices": [int(count) for count in counts.split(",")]})
    except ValueError:
        raise WrongUse(f"--devices {devices}: write whole numbers with commas, as in 1,2,4") from None
    return campaigns.prepare(suite, "")


def _derive(folder: Path, recorded: list[Path]) -> None:
    """Write the fits, predictions and page of a measured study."""
    from analysis.aggregation import report

    if not (folder / "study.json").exists() or not (folder / "links.csv").exists():
        raise WrongUse(f"{folder}: no study of aggregation; name a folder that `dlbench study aggregation` wrote")
    page = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    _refuse_useless(recorded, page["trials"][0]["device_kind"])
    _update(folder, {"recorded": [each.name for each in recorded]})
    say(f"Page: {report.write(folder, recorded)}")
    manifest.write_manifest(folder)


def _refuse_forced_wire(device_kind: str) -> None:
    """Raise WrongUse where GPUs are kept apart from outside: the library's own choice of a wire would be none."""
    from analysis.aggregation import predictions

    if device_kind == "cuda" and (name := predictions.forced_apart(os.environ)):
        raise WrongUse(f"{name}={os.environ[name]} keeps the GPUs apart, and the study measures both with and without direct "
                       f"transfers itself: unset {name}")


def _refuse_useless(recorded: list[Path], device_kind: str) -> None:
    """Raise WrongUse or BadRecords for a campaign that these links explain nothing of."""
    from analysis.aggregation import predictions

    for folder in recorded:
        kinds = {trial["device_kind"] for trial in predictions.several(reader.read(folder))}
        if not kinds:
            raise WrongUse(f"{folder}: no row on several devices ended well, so there is no aggregation to explain; leave it out, "
                           "or name a campaign with devices=2 or more")
        if kinds != {device_kind}:
            raise WrongUse(f"{folder}: it ran on several devices of {', '.join(sorted(kinds))}, and these links are those of "
                           f"{device_kind}; name a campaign of the same machine")


def _update(folder: Path, fields: dict[str, Any]) -> None:
    file = folder / "study.json"
    page = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**page, **fields}, indent=1), encoding="utf-8")
