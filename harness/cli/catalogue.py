"""`dlbench networks` and `dlbench frameworks`: what can be trained, and what trains it."""

from collections.abc import Sequence
from typing import get_args

from rich import box
from rich.table import Table

import networks
from harness.environments import recipes
from networks import work


def list_networks() -> Table:
    # Without lines and with titles below the names, nothing is cut at 80 columns.
    table = Table("network", "parameters", "million\nMACs\nforward", "million\nMACs\nbackward",
                  "activations\nMB a sample", "data", "batch", box=box.SIMPLE_HEAD,
                  padding=0)
    for column in table.columns[1:5]:
        column.justify = "right"
    table.columns[0].overflow = "fold"
    names = [*networks.names(), *networks.names(small=True)]
    for column, width in zip(table.columns[1:], (13, 9, 9, 11, 9, 6), strict=True):
        column.width = width
    for name in names:
        network = networks.get(name)
        table.add_row(f"[bold]{name}[/]\n{network.title}", f"{network.parameter_count:,}",
                      *_millions(list(work.multiply_adds(network).values())),
                      f"{work.activation_bytes(network) / 1e6:.3g}", network.data_set,
                      " ".join(map(str, network.batches)))
    return table


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
    table = Table("layer", "operation", "inputs", "attributes", "output", "parameters",
                  "million MACs\nforward", "backward", title=f"{network.name}: {network.title}")
    for column in table.columns[5:]:
        column.justify = "right"
    counts = work.multiply_adds(network)
    for layer in network.layers:
        attributes = " ".join(f"{key}={value}" for key, value in layer.attributes.items())
        parameters = f"{layer.parameter_count:,}" if layer.parameter_count else ""
        table.add_row(layer.name, layer.op, " ".join(layer.inputs), attributes,
                      " x ".join(map(str, layer.output_shape)), parameters,
                      *(text if text != "0" else "" for text in _millions([counts[layer.name]])))
    table.add_row("[bold]total", "", "", "", "", f"{network.parameter_count:,}",
                  *_millions(list(counts.values())))
    return table


def _millions(counts: Sequence[tuple[int, int]]) -> list[str]:
    """Add up multiply-adds, forward and backward."""
    sums = [sum(each) / 1e6 for each in zip(*counts, strict=True)]
    return [f"{each:,.0f}" if each >= 1000 else f"{each:.4g}" for each in sums]
