"""Commands that show what there is and get it ready: lists, `doctor`, `init`, `env`, `data`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

import networks
from harness.cli import cluster
from harness.cli.options import folder_of
from harness.cli.terminal import console, dim, say
from harness.errors import WrongUse
from harness.studies.study import DEVICES, known

env_app = typer.Typer(no_args_is_help=True,
                      help="The frameworks' environments, in .envs/ or $DLBENCH_ENVS.")
data_app = typer.Typer(no_args_is_help=True,
                       help="Real data sets under $DLBENCH_DATA (default data/).")


def init(file: Annotated[Path, typer.Argument(metavar="[FILE.yaml]", parser=folder_of)
                         ] = Path("suite.yaml")) -> None:
    """Write a first suite, with a comment on each key."""
    text = Path(__file__).with_name("first_suite.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as draft:
            draft.write(text.replace("suite.yaml", str(file)))
    except FileExistsError:
        raise WrongUse(f"{file}: is there already; name another file") from None
    say(f"{file}: a first suite. Look with `dlbench run {file} --dry-run`, then run it.")


def show_frameworks() -> None:
    """List the frameworks with their releases, Pythons and devices."""
    from harness.cli import catalogue

    console.print(catalogue.list_frameworks())


def show_networks(name: Annotated[str | None, typer.Argument(help="One network: its layers.")
                                  ] = None) -> None:
    """List the networks with their parameters and work, or print one network's layers."""
    from harness.cli import catalogue

    console.print(catalogue.list_layers(networks.get(name)) if name else catalogue.list_networks())


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    on: Annotated[str, typer.Option(help="slurm: describe the cluster's nodes instead.")] = "",
) -> None:
    """Describe this machine, the frameworks that run here, and what would distort its numbers."""
    from harness.machine import doctor

    if on:
        cluster.describe_nodes(on, as_json)
        return
    found = doctor.examine()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        doctor.show(found, console)


@env_app.command("list")
def list_environments() -> None:
    """List the environments that exist."""
    from harness.environments import store

    table = Table("framework", "release", "device", "Python", "packages", "folder",
                  box=box.SIMPLE_HEAD, padding=0)
    table.columns[-1].overflow = "fold"
    for each in store.list_environments():
        table.add_row(each.framework, each.release, each.device, each.python,
                      str(len(each.packages)), escape(str(each.interpreter.parents[1])))
    none = f"No environments under {store.root()}: dlbench env build pytorch"
    console.print(table if table.row_count else none)


@env_app.command("build")
def build_environments(
    specs: Annotated[list[str], typer.Argument(metavar="FRAMEWORK[==RELEASE]...")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Build environments; one that exists is left as it is."""
    from harness.campaign.campaign import choose_device
    from harness.environments import recipes, store
    from harness.machine import hardware

    known([device], DEVICES, "--device")
    kind = choose_device(device, hardware.describe())
    for framework, release in [recipes.parse(spec) for spec in specs]:
        built = store.build(framework, release, kind, dim)
        say(f"{framework}=={release} ({kind}): {built.interpreter}")


@data_app.command("list")
def list_data() -> None:
    """List the real data sets and which of them are here."""
    from harness.data import data_sets

    for name in data_sets.names():
        source = data_sets.available(name)
        say(f"{name}: {source.text if source else 'not here: dlbench data fetch ' + name}")


@data_app.command("fetch")
def fetch_data(name: str) -> None:
    """Fetch a real data set from its publisher and check its SHA-256."""
    from harness.data import data_sets

    data_sets.fetch(name, dim)
