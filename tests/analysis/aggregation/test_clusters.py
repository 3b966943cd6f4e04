"""The arithmetic of hierarchical all-reduces, and MLPerf's published times as shares of linear."""

import pytest

from analysis.aggregation import clusters
from analysis.aggregation.clusters import Cluster, Link

PLAIN = Cluster(4, Link(1e-5, 100e9), Link(2e-5, 10e9))
STEP = 0.0364  # ResNet-50, batch 256, on an H200


def test_one_node_is_the_flat_ring():
    for each in clusters.TOPOLOGIES.values():
        assert each(1e8, 4, PLAIN) == pytest.approx(PLAIN.inner.ring_seconds(4, 1e8))


def test_one_device_a_node_is_the_flat_ring_over_nodes():
    alone = Cluster(1, PLAIN.inner, PLAIN.outer)
    assert clusters.ring_seconds(1e8, 16, alone) == pytest.approx(PLAIN.outer.ring_seconds(16, 1e8))


def test_64_and_1024_devices_take_what_a_hand_computes():
    # In a node 6 messages of 25 MB: 6 x (10 us + 250 us). Between nodes a shard of 25 MB.
    inside = 6 * (1e-5 + 25e6 / 100e9)
    assert clusters.ring_seconds(1e8, 64, PLAIN) == pytest.approx(inside + 30 * (2e-5 + 25e6 / 16 / 10e9))
    assert clusters.ring_seconds(1e8, 1024, PLAIN) == pytest.approx(inside + 510 * (2e-5 + 25e6 / 256 / 10e9))
    assert clusters.tree_seconds(1e8, 1024, PLAIN) == pytest.approx(inside + 2 * (8 * 2e-5 + 25e6 / 10e9))


def test_a_ring_pays_latency_by_nodes_and_a_tree_by_levels():
    small, many = 1e6, 1024
    assert clusters.tree_seconds(small, many, PLAIN) < 0.2 * clusters.ring_seconds(small, many, PLAIN)


def test_efficiency_falls_with_devices_and_with_a_slow_network():
    found = [clusters.efficiency("resnet50", STEP, count, "ring", PLAIN) for count in (1, 8, 64, 1024)]
    assert found[0] == 1 and found == sorted(found, reverse=True)
    slow = Cluster(8, PLAIN.inner, Link(5e-5, 1e8))
    assert clusters.efficiency("resnet50", STEP, 64, "tree", slow) < 0.5


def test_mlperf_trains_far_below_linear_where_the_model_sees_almost_no_loss():
    """Time to accuracy loses what the model leaves out: smaller shares of a batch, more epochs, waiting (docs/method/devices.md)."""
    shares = clusters.published()
    assert {count: round(share, 2) for count, share in shares.items()} == {8: 1.0, 64: 0.63, 512: 0.41, 768: 0.38, 3584: 0.16}
    model = {count: clusters.efficiency("resnet50", STEP, count, "tree", Cluster()) for count in shares}
    assert all(share > 0.98 for share in model.values())
