"""`dlbench networks`: the networks with their parameters and work, or one network's layers."""

from collections.abc import Sequence

from rich.table import Table

import networks
from networks import work


def list_networks() -> Table:
    table = Table("network", "what it is", "parameters", "forward\nmillion MACs",
                  "backward\nmillion MACs", "activations\nMB a sample", "data", "batches")
    for column in table.columns[2:6]:
        column.justify = "right"
    for name in [*networks.names(), *networks.names(small=True)]:
        network = networks.get(name)
        table.add_row(name, network.title, f"{network.parameter_count:,}",
                      *_millions(list(work.multiply_adds(network).values())),
                      f"{work.activation_bytes(network) / 1e6:.3g}", network.data_set,
                      " ".join(map(str, network.batches)))
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
    return [f"{sum(each) / 1e6:,.4g}" for each in zip(*counts, strict=True)]
