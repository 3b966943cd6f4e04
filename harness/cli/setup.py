"""Commands that show what there is and get it ready: lists, `doctor`, `init`, `env`, `data`."""

import json
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

import networks
from harness.cli import cluster
from harness.cli.options import folder_of
from harness.cli.terminal import console, dim, say
from harness.environments import recipes
from harness.errors import WrongUse
from harness.studies.study import DEVICES, known
from networks import work

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
    say(f"{file}: a first suite. Look with `dlbench run {shlex.quote(str(file))} --dry-run`, "
        "then run it.")


def show_frameworks() -> None:
    """List the frameworks with their releases, Pythons and devices."""
    console.print(list_frameworks())


def show_networks(name: Annotated[str | None, typer.Argument(help="One network: its layers.")
                                  ] = None) -> None:
    """List the networks with their parameters and work, or print one network's layers."""
    console.print(list_layers(networks.get(name)) if name else list_networks())


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
    """Build environments, several at a time; one that exists is left as it is."""
    from harness.campaign.campaign import choose_device
    from harness.environments import side_by_side, store
    from harness.machine import hardware

    known([device], DEVICES, "--device")
    kind = choose_device(device, hardware.describe())

    def make(framework: str, release: str) -> store.BuildFailed | None:
        try:
            built = store.build(framework, release, kind, dim)
        except store.BuildFailed as failure:
            return failure
        say(f"{framework}=={release} ({kind}): {built.interpreter}")
        return None

    for failure in side_by_side.make_all([partial(make, *recipes.parse(spec)) for spec in specs]):
        if failure:
            raise failure


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


def list_networks() -> str:
    """List each network's size and use, with what it is on a line below."""
    lines = [f"{'network':19} {'parameters':>13} {'forward MMACs':>14}  {'data':10} batches"]
    for name in [*networks.names(), *networks.names(small=True)]:
        network = networks.get(name)
        forward, _ = _millions(list(work.multiply_adds(network).values()))
        batches = " to ".join(map(str, sorted({network.batches[0], network.batches[-1]})))
        lines += [f"[bold]{name:19}[/] {network.parameter_count:13,} {forward:>14}  "
                  f"{network.data_set:10} {batches}", f"  [dim]{escape(network.title)}[/]"]
    return "\n".join(lines)


def list_frameworks() -> Table:
    """List each framework's releases, the default first and bold, and what runs them."""
    table = Table("framework", "releases", "Python", "devices", "several devices",
                  box=box.SIMPLE_HEAD, padding=0)
    for name in recipes.names():
        framework = recipes.load(name)
        others = [release for release in framework.releases if release != framework.default]
        recipe = framework.recipe(framework.default)
        devices = [kind for kind in get_args(recipes.Device) if kind not in recipe.unsupported]
        several = framework.parallel.strategies if framework.parallel else {}
        table.add_row(f"[bold]{name}[/]\n{framework.title}",
                      "\n".join([f"[bold]{framework.default}[/]", *others]),
                      recipes.spell(recipe.python), " ".join(devices),
                      " ".join(kind for kind in devices if several.get(kind)) or "-")
    return table


def list_layers(network: networks.Network) -> Table:
    # At 80 columns nothing is cut: lines break between words.
    table = Table("layer", "operation", "inputs", "output", "parameters",
                  "million\nMACs\nforward", "million\nMACs\nbackward", box=box.SIMPLE_HEAD,
                  padding=0, title=f"{network.name}: {network.title}")
    for column in table.columns[:4]:
        column.overflow = "fold"
    for column in table.columns[4:]:
        column.justify, column.no_wrap = "right", True
    counts = work.multiply_adds(network)
    for layer in network.layers:
        attributes = " ".join(f"{key}={value}" for key, value in layer.attributes.items())
        parameters = f"{layer.parameter_count:,}" if layer.parameter_count else ""
        table.add_row(layer.name, f"{layer.op} {attributes}", " ".join(layer.inputs),
                      " x ".join(map(str, layer.output_shape)), parameters,
                      *(text if text != "0" else "" for text in _millions([counts[layer.name]])))
    table.add_row("[bold]total", "", "", "", f"{network.parameter_count:,}",
                  *_millions(list(counts.values())))
    return table


def _millions(counts: Sequence[tuple[int, int]]) -> list[str]:
    """Add up multiply-adds, forward and backward."""
    sums = [sum(each) / 1e6 for each in zip(*counts, strict=True)]
    return [f"{each:,.0f}" if each >= 1000 else f"{each:.4g}" for each in sums]
