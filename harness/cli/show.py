"""`dlbench study show`: tables, plots and page of a recorded GEMM, convolution or layers study, or of its parts, made again."""

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import Campaigns, say
from harness.errors import WrongUse
from harness.studies.recorder import merge


def show(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="A study's folder; of one in parts, all of them.")],
    campaigns: Campaigns = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Of several parts: the folder of the whole.")] = None,
) -> None:
    """Make the page of a recorded study again, as with the kernels of a campaign that came later."""
    from analysis.studies import conv, gemm, layers

    name = _study(folders[0])
    if name not in ("gemm", "conv", "layers"):
        raise WrongUse(f"{folders[0]}: holds the study {name}, which `dlbench study {name}` shows itself")
    target = out or folders[0]
    if len(folders) > 1:
        if target in folders:
            raise WrongUse("several parts: name the folder of the whole with --out")
        merge(folders, target)
    elif target != folders[0]:
        raise WrongUse(f"--out {target}: a study's page lies beside its records; leave --out away")
    if name == "layers":
        page = layers.write([target], target)
    else:
        page = (gemm if name == "gemm" else conv).write([target], target, campaigns or [])
    say(f"Page: {page}")


def _study(folder: Path) -> str:
    try:
        return str(json.loads((folder / "study.json").read_text(encoding="utf-8"))["study"])
    except (OSError, ValueError, KeyError) as error:
        raise WrongUse(f"{folder}: no study ({error}); name a folder that `dlbench study` wrote") from None
