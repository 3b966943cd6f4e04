"""What a step would take on many nodes: hierarchical all-reduces behind the backward pass.

Assumptions: weak scaling; every GPU has a network card of its own; the backward pass is two thirds
of a step; float32 gradients go in DistributedDataParallel's buckets; no device waits for a slower
one, for data, or for another user of the network.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

import networks
from analysis.aggregation import overlap
from analysis.aggregation.what_if import OTHER_LINKS, Link
from analysis.records.reader import Campaign
from analysis.trials import summary

BACKWARD_SHARE = 2 / 3
# Minutes until ResNet-50 reaches 75.9 % on so many H100s. MLPerf Training 3.0, closed division:
# entries 2053, 2071, 2068, 2075 and 2002, as NVIDIA's page of training performance lists them.
MLPERF_MINUTES = {8: 13.466, 64: 2.664, 512: 0.509, 768: 0.369, 3584: 0.183}


@dataclass(frozen=True)
class Cluster:
    """Nodes of `per_node` devices; `inner` joins those of a node and `outer` joins nodes."""

    per_node: int = 8
    inner: Link = OTHER_LINKS["NVLink 4"]
    outer: Link = OTHER_LINKS["400 Gb/s InfiniBand"]


def ring_seconds(size: float, devices: int, cluster: Cluster) -> float:
    """Reduce-scatter in each node, ring all-reduce of each shard over nodes, gather in each node.
    """
    local, nodes, shard = _split(size, devices, cluster)
    return cluster.inner.ring_seconds(local, size) + cluster.outer.ring_seconds(nodes, shard)


def tree_seconds(size: float, devices: int, cluster: Cluster) -> float:
    """Combine each shard over nodes by two pipelined trees (Sanders, Speck and Traff 2009).

    Each moves half the shard up and down, so all bytes pass twice and latency counts levels.
    """
    local, nodes, shard = _split(size, devices, cluster)
    between = 2 * (math.ceil(math.log2(nodes)) * cluster.outer.latency_seconds
                   + shard / cluster.outer.bytes_per_second) if nodes > 1 else 0.0
    return cluster.inner.ring_seconds(local, size) + between


TOPOLOGIES: dict[str, Callable[[float, int, Cluster], float]] = {
    "ring": ring_seconds, "tree": tree_seconds}


def efficiency(network: str, step_seconds: float, devices: int, topology: str,
               cluster: Cluster) -> float:
    """Return a step of one device over a step of `devices`."""
    backward = BACKWARD_SHARE * step_seconds
    sent = overlap.gradients(networks.get(network), backward, "bucket")
    found = overlap.overlap(sent, backward,
                            lambda size: TOPOLOGIES[topology](size, devices, cluster))
    return step_seconds / (step_seconds + found.exposed_seconds)


def table(campaign: Campaign, counts: Sequence[int], cluster: Cluster) -> pd.DataFrame:
    """Predict the efficiency of each verified trial that one device trained; a row a topology."""
    rows = summary.summarise(campaign)
    rows = rows[(rows["verified"] == "yes") & (rows["devices"] == 1) & (rows["mode"] == "training")]
    return pd.DataFrame([{
        "trial": " ".join(str(row[column]) for column in (
            "framework", "network", "batch", "precision", "tuning")), "topology": topology,
        **{count: efficiency(row["network"], row["step_seconds"], count, topology, cluster)
           for count in counts}} for row in rows.to_dict("records") for topology in TOPOLOGIES])


def published() -> dict[int, float]:
    """Return MLPerf's speed-ups over its smallest entry, each as a share of linear."""
    first = min(MLPERF_MINUTES)
    return {count: MLPERF_MINUTES[first] / minutes * first / count
            for count, minutes in MLPERF_MINUTES.items()}


def _split(size: float, devices: int, cluster: Cluster) -> tuple[int, int, float]:
    """Return devices a node, nodes, and the bytes that each device sends between nodes."""
    local = min(devices, cluster.per_node)
    return local, math.ceil(devices / local), size / local
