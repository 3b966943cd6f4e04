"""Options that several commands share, and `command`: a dataclass of options becomes a command."""

import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from harness.errors import WrongUse
from harness.validation import CHECKOUT

Options = TypeVar("Options")

MOST_COUNT, LONGEST_WINDOW, MOST_GFLOP = 100_000, 3600, 1e9


def folder_of(text: str | Path) -> Path:
    """Refuse an empty name, which would mean the working folder."""
    if not str(text).strip():
        raise typer.BadParameter("is empty; name a folder, or . for this one")
    return Path(text)


def suite_of(text: str | Path) -> Path:
    """Find a suite: a file, or one that dlbench comes with (smoke, configs/gpu.yaml)."""
    path = folder_of(text)
    shipped = CHECKOUT / "configs" / f"{path.stem}.yaml"
    named = str(path) in (shipped.stem, shipped.name, f"configs/{shipped.name}")
    return shipped if named and not path.is_file() and shipped.is_file() else path


def finite(value: float | None) -> float | None:
    """Refuse NaN, which lies within every range."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number")
    return value


Campaigns = Annotated[list[Path] | None, typer.Option(
    "--campaign", metavar="DIR", parser=folder_of,
    help="A campaign whose kernels.csv shows what frameworks call.")]
Out = Annotated[Path | None, typer.Option(
    "--out", metavar="DIR", parser=folder_of, help="Default: a new folder under results/.")]
Overrides = Annotated[list[str] | None, typer.Argument(
    metavar="[KEY=VALUE]...", help="As in devices=1,2 batch=64.")]
Processes = Annotated[int, typer.Option(
    min=1, max=MOST_COUNT, help="Repetitions in new processes; an interval needs three or more.")]
WindowSeconds = Annotated[float, typer.Option(
    min=0, max=LONGEST_WINDOW, callback=finite, help="Length of a timed window.")]
Interpreter = Annotated[list[str] | None, typer.Option(
    "--interpreter", metavar="FRAMEWORK[==RELEASE]=PATH",
    help="An interpreter that has the framework already, once for each framework or release.")]


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Options of every command that measures into a folder."""

    out: Out = None
    allow_dirty: Annotated[bool, typer.Option(
        "--allow-dirty", help="Measure on a GPU that others use or that is throttled; "
        "every row says so.")] = False
    interpreter: Interpreter = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(Measuring):
    suite_file: Annotated[Path, typer.Argument(
        metavar="SUITE.yaml", parser=suite_of, help="A file, or a suite of dlbench: smoke, gpu.")]
    overrides: Overrides = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the campaign in DIR.")
                      ] = False
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print the plan and an estimate of its time; start nothing.")] = False
    on: Annotated[str, typer.Option(
        "--on", metavar="WHERE", help="slurm, slurm,partition=gpu,time=2:00:00, or a YAML file: "
        "run it as a job of that cluster.")] = ""
    assume_gpus: Annotated[int, typer.Option(
        "--assume-gpus", min=0, max=64, help="With --dry-run: plan for a node with so many GPUs.")
    ] = 0
    live: Annotated[bool, typer.Option(
        "--live", help="Serve a page that shows the campaign as it runs.")] = False


def command(app: typer.Typer, name: str | None = None
            ) -> Callable[[Callable[[Options], None]], Callable[[Options], None]]:
    """Add a function of one dataclass to `app`: the fields become the command's parameters.

    Fields of the class itself come before those that it inherits.
    """
    def add(function: Callable[[Options], None]) -> Callable[[Options], None]:
        [kind] = [hint for key, hint in get_type_hints(function).items() if key != "return"]
        hints = get_type_hints(kind, include_extras=True)
        defaults = {each.name: inspect.Parameter.empty if each.default is MISSING else each.default
                    for each in fields(kind)}

        def run(**given: Any) -> None:
            function(kind(**given))

        keys = dict.fromkeys(key for each in kind.__mro__ for key in inspect.get_annotations(each))
        run.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=defaults[key],
                              annotation=hints[key]) for key in keys])
        run.__annotations__ = hints
        run.__doc__ = function.__doc__
        app.command(name or function.__name__)(run)
        return function

    return add


def words(text: str) -> list[str]:
    """Split what is written with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, option: str) -> list[int]:
    """Split whole numbers that are written with commas. Raises WrongUse for anything else."""
    found = words(text)
    for word in found:
        if not (word.isdecimal() and 1 <= int(word) <= MOST_COUNT):
            raise WrongUse(f"{option} {text}: write whole numbers from 1 to {MOST_COUNT} "
                           "with commas, as in 1024,4096")
    return [int(word) for word in found]
