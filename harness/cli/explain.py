"""The words of `dlbench explain`: they choose two trials of recorded campaigns, ask analysis.explain.gap for the gap, and print it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from harness.errors import WrongUse
from harness.plan.suite import Precision, Tuning
from harness.validation import did_you_mean

console = Console()

CHOSEN = ("network", "batch", "devices", "threads", "precision", "tuning", "data", "release", "strategy")  # by options or the word
TOLD_APART = ("network", "batch", "devices", "device_kind", "threads", "precision", "tuning", "data", "release", "strategy", "side")
SideWord = Annotated[str, typer.Option(metavar="FRAMEWORK[==RELEASE][:TUNING][:PRECISION]|TRIAL",
                                       help="As in jax, jax==0.9.2:tuned or pytorch:tf32; or a trial's whole name.")]


def explain(
    folders: Annotated[list[Path], typer.Argument(metavar="CAMPAIGN [CAMPAIGN]", help="One holds both trials, or A's and B's.")],
    a: SideWord,
    b: SideWord,
    network: Annotated[str, typer.Option(help="As in fcn5.")] = "",
    batch: Annotated[str, typer.Option(help="Per device.")] = "",
    precision: Annotated[str, typer.Option(help="Of both sides.")] = "",
    tuning: Annotated[str, typer.Option(help="Of both sides.")] = "",
    devices: Annotated[str, typer.Option(help="How many.")] = "",
    threads: Annotated[str, typer.Option(help="On a CPU.")] = "",
    data: Annotated[str, typer.Option(help="As in device or host.")] = "",
    strategy: Annotated[str, typer.Option(help="Of several devices, as in ring; of both sides.")] = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: a folder of its own under results/.")] = None,
    across_machines: Annotated[bool, typer.Option("--across-machines", help="Explain campaigns of different hardware.")] = False,
) -> None:
    """Say why one trial's step takes longer than another's: classes of work that add up to the measured difference."""
    from analysis.compare import verdicts
    from analysis.explain import gap as explaining
    from analysis.explain import report, words
    from analysis.records import reader

    if len(folders) > 2:
        raise WrongUse("name one campaign, or A's and B's")
    campaigns = [reader.read(folder) for folder in folders]
    filters = {"network": network, "batch": batch, "precision": precision, "tuning": tuning, "devices": devices,
               "threads": threads, "data": data, "strategy": strategy}
    wanted = {key: value for key, value in filters.items() if value}
    trials = [choose(campaign.trials, word, wanted) for campaign, word in zip((campaigns[0], campaigns[-1]), (a, b), strict=True)]
    if len(campaigns) == 2 and not across_machines:
        verdicts.refuse_other_hardware(*(verdicts.recorded(campaign) for campaign in campaigns))
    _refuse_other_work(*trials)
    sides = [explaining.side_of(name, campaign, trial["trial"])
             for name, campaign, trial in zip(names(*trials), (campaigns[0], campaigns[-1]), trials, strict=True)]
    gap = explaining.explain(*sides)
    folder = out or Path("results") / f"explain-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        paths = report.write(gap, campaigns, folder)
    except OSError as error:
        raise WrongUse(f"{error.filename or folder}: {error.strerror}; name another folder with --out") from None
    console.print(report.terminal_table(gap))
    for sentence in words.sentences(gap):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    console.print(f"Page: {paths[-1]}", markup=False, highlight=False, soft_wrap=True)


def choose(trials: Sequence[dict[str, Any]], word: str, wanted: dict[str, str]) -> dict[str, Any]:
    """Choose the one trial that `word` and the options mean; refused ones, which have no step, where no other has what is asked.

    Raises WrongUse where it is none or several.
    """
    named = [trial for trial in trials if trial["trial"] == word]
    if named:
        return named[0]
    wanted = {**wanted, **meaning(word)}
    found = [trial for trial in trials if all(str(trial.get(key)) == value for key, value in wanted.items())]
    found = [trial for trial in found if trial.get("status") != "unsupported"] or found
    if len(found) == 1:
        return found[0]
    asked = ", ".join(f"{key} {value}" for key, value in wanted.items())
    if not found:
        raise WrongUse(f"{word}: no trial has {asked}; there are: {'; '.join(trial['trial'] for trial in trials)}")
    several = {key: sorted({str(trial[key]) for trial in found if trial.get(key, "") != ""}) for key in CHOSEN}
    apart = "; ".join(f"{key}: {', '.join(values)}" for key, values in several.items() if len(values) > 1)
    remedy = f"choose among {apart}, or give a trial's whole name" if apart else \
        f"give the whole name of one: {'; '.join(trial['trial'] for trial in found)}"
    raise WrongUse(f"{word}: {len(found)} trials have {asked}; {remedy}")


def meaning(word: str) -> dict[str, str]:
    """Read `jax==0.9.2:tuned:tf32` into framework, release, tuning and precision; all but the framework may be left out."""
    spec, *rest = word.split(":")
    framework, _, release = spec.partition("==")
    said = {"framework": framework, **({"release": release} if release else {})}
    for each in rest:
        if each in get_args(Tuning):
            said["tuning"] = each
        elif each in get_args(Precision):
            said["precision"] = each
        else:
            known = [*get_args(Tuning), *get_args(Precision)]
            raise WrongUse(f"{word}: {each} is neither a tuning nor a precision{did_you_mean(each, known)}")
    return said


def names(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    """Call each trial by its framework and by whatever else tells the two apart."""
    apart = [key for key in TOLD_APART if a.get(key) != b.get(key) and key != "release"]
    if a["framework"] == b["framework"] and a["release"] != b["release"]:
        apart.insert(0, "release")
    first, second = (" ".join(filter(None, [trial["framework"], *(_said(trial, key) for key in apart)])) for trial in (a, b))
    return (f"{first} A", f"{second} B") if first == second else (first, second)


def _said(trial: dict[str, Any], key: str) -> str:
    value = trial.get(key, "")
    return f"batch {value}" if key == "batch" else f"{value} device{'s' if value > 1 else ''}" if key == "devices" else str(value)


def _refuse_other_work(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Parts of a CPU's and of a GPU's step are no parts of one difference, and neither are those of two networks."""
    for key in ("network", "device_kind"):
        if a[key] != b[key]:
            raise WrongUse(f"A is of {key} {a[key]} and B of {b[key]}: a step is explained by another of the same {key}")
