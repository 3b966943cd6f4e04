"""`dlbench explain`: choose two trials of recorded campaigns and say why one takes longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from harness.cli.options import Out, folder_of
from harness.cli.terminal import console, new_folder, say, writing
from harness.errors import WrongUse
from harness.plan.parts import Precision, Tuning
from harness.validation import did_you_mean

# Columns of trials.csv that the options, or a side itself, choose by.
FILTERS = ("network", "batch", "precision", "tuning", "devices", "threads", "data", "strategy")
CHOSEN = (*FILTERS, "release")
NAMED = ("network", "batch", "devices", "device_kind", "threads", "precision", "tuning", "data",
         "strategy", "side")
Side = Annotated[str, typer.Option(
    metavar="FRAMEWORK[==RELEASE][:TUNING][:PRECISION]|TRIAL",
    help="As in jax, jax==0.9.2:tuned or pytorch:tf32; or a trial's whole name.")]


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    folders: Annotated[list[Path], typer.Argument(
        metavar="CAMPAIGN [CAMPAIGN]", parser=folder_of,
        help="One that holds both trials, or A's and B's.")]
    a: Side
    b: Side
    network: Annotated[str, typer.Option(help="As in fcn5.")] = ""
    batch: Annotated[str, typer.Option(help="Per device.")] = ""
    precision: Annotated[str, typer.Option(help="Of both sides.")] = ""
    tuning: Annotated[str, typer.Option(help="Of both sides.")] = ""
    devices: Annotated[str, typer.Option(help="How many.")] = ""
    threads: Annotated[str, typer.Option(help="On a CPU.")] = ""
    data: Annotated[str, typer.Option(help="As in device or host.")] = ""
    strategy: Annotated[str, typer.Option(
        help="Of several devices, as in ring; of both sides.")] = ""
    out: Out = None
    across_machines: Annotated[bool, typer.Option(
        "--across-machines", help="Explain campaigns of different hardware.")] = False


def explain(options: ExplainOptions) -> None:
    """Say why a step of one trial takes longer than a step of another.

    The difference is divided into classes of work that add up to it.
    """
    from analysis.compare import verdicts
    from analysis.explain import gap, report, words
    from analysis.records import reader

    if len(options.folders) > 2:
        raise WrongUse("name one campaign, or A's and B's")
    campaigns = [reader.read(folder) for folder in options.folders]
    sides = [(campaigns[0], options.a), (campaigns[-1], options.b)]
    wanted = {key: value for key in FILTERS if (value := getattr(options, key))}
    trials = [choose(campaign.trials, side, wanted) for campaign, side in sides]
    if len(campaigns) == 2 and not options.across_machines:
        verdicts.refuse_other_hardware(*(verdicts.recorded(campaign) for campaign in campaigns))
    for key in ("network", "device_kind", "mode"):
        a, b = (trial.get(key, "training") for trial in trials)
        if a != b:
            raise WrongUse(f"A has {key} {a} and B has {key} {b}: explain compares steps of the "
                           f"same {key}")
    found = gap.explain(*(gap.side_of(name, campaign, trial["trial"]) for name, (campaign, _), trial
                          in zip(names(*trials), sides, trials, strict=True)))
    folder = options.out or new_folder("explain")
    with writing(folder):
        paths = report.write(found, campaigns, folder)
    console.print(report.terminal_table(found))
    for sentence in [*words.sentences(found), *report.remarks(found, campaigns)]:
        say(sentence)
    say(f"Page: {paths[-1]}")


def choose(trials: Sequence[dict[str, Any]], side: str, wanted: dict[str, str]) -> dict[str, Any]:
    """Choose the one trial that `side` and the options name. Raises WrongUse for none or several.

    Unsupported trials have no step, so they are chosen only if no other trial fits.
    """
    named = [trial for trial in trials if trial["trial"] == side]
    if named:
        return named[0]
    wanted = {**wanted, **parse_side(side)}
    found = [trial for trial in trials
             if all(str(trial.get(key)) == value for key, value in wanted.items())]
    found = [trial for trial in found if trial.get("status") != "unsupported"] or found
    if len(found) == 1:
        return found[0]
    asked = ", ".join(f"{key} {value}" for key, value in wanted.items())
    if not found:
        raise WrongUse(f"{side}: no trial has {asked}; there are: {_listed(trials)}")
    values = {key: sorted({str(trial[key]) for trial in found if trial.get(key, "") != ""})
              for key in CHOSEN}
    apart = "; ".join(f"{key}: {', '.join(each)}" for key, each in values.items() if len(each) > 1)
    remedy = (f"choose among {apart}, or give a trial's whole name" if apart
              else f"give the whole name of one: {_listed(found)}")
    raise WrongUse(f"{side}: {len(found)} trials have {asked}; {remedy}")


def parse_side(side: str) -> dict[str, str]:
    """Read `jax==0.9.2:tuned:tf32` into framework, release, tuning and precision.

    Only the framework is required.
    """
    spec, *rest = side.split(":")
    framework, _, release = spec.partition("==")
    said = {"framework": framework, **({"release": release} if release else {})}
    for each in rest:
        if each in get_args(Tuning):
            said["tuning"] = each
        elif each in get_args(Precision):
            said["precision"] = each
        else:
            known = [*get_args(Tuning), *get_args(Precision)]
            raise WrongUse(f"{side}: {each} is neither a tuning nor a precision"
                           f"{did_you_mean(each, known)}")
    return said


def names(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    """Name each trial by its framework and by the values that differ from the other's."""
    keys = ["framework", *(key for key in NAMED if a.get(key) != b.get(key))]
    if a["framework"] == b["framework"] and a["release"] != b["release"]:
        keys.insert(1, "release")
    first, second = (" ".join(filter(None, (_value(trial, key) for key in keys)))
                     for trial in (a, b))
    return (f"{first} A", f"{second} B") if first == second else (first, second)


def _value(trial: dict[str, Any], key: str) -> str:
    value = trial.get(key, "")
    if key == "devices":
        return f"{value} device{'s' if value > 1 else ''}"
    return f"batch {value}" if key == "batch" else str(value)


def _listed(trials: Sequence[dict[str, Any]]) -> str:
    return "; ".join(trial["trial"] for trial in trials)
