"""The layer-wise model: a layer's gradients go when they are ready and the link is free; a schedule worked out by hand."""

import pytest

import networks
from analysis.aggregation import overlap
from analysis.aggregation.overlap import Gradient
from networks import work

FCN5 = networks.get("fcn5")
SENT = [Gradient("last", 10, 1.0), Gradient("middle", 30, 2.0), Gradient("first", 20, 3.0)]


def test_a_fast_link_leaves_the_last_transfer_alone_exposed():
    found = overlap.overlap(SENT, 3.0, lambda size: size / 100)
    assert (found.aggregation_seconds, found.exposed_seconds) == (pytest.approx(0.6), pytest.approx(0.2))


def test_a_slow_link_is_never_idle_after_the_first_gradient():
    found = overlap.overlap(SENT, 3.0, lambda size: size / 10)  # 1 to 2, 2 to 5, 5 to 7
    assert (found.aggregation_seconds, found.exposed_seconds) == (6.0, 4.0)


def test_sent_as_a_whole_nothing_is_hidden():
    sent = overlap.gradients(FCN5, 0.01, "whole")
    assert [(each.size_bytes, each.ready_seconds) for each in sent] == [(work.parameter_bytes(FCN5), 0.01)]
    assert overlap.overlap(sent, 0.01, lambda _: 0.5).exposed_seconds == pytest.approx(0.5)


def test_layers_are_ready_in_reverse_order_by_their_share_of_the_operations():
    sent = overlap.gradients(FCN5, 1.0, "layer")
    assert [each.name for each in sent] == ["dense4", "dense3", "dense2", "dense1"]
    counts = work.multiply_adds(FCN5)
    backward = {name: count for name, (_, count) in counts.items()}
    assert sent[1].ready_seconds == pytest.approx((backward["dense4"] + backward["dense3"]) / sum(backward.values()))
    assert sent[-1].ready_seconds == pytest.approx(1.0)


@pytest.mark.parametrize("network", ["fcn5", "alexnet", "resnet50", "lstm32"])
@pytest.mark.parametrize("grouping", overlap.GROUPINGS)
def test_no_gradient_is_lost_in_any_grouping(network, grouping):
    sent = overlap.gradients(networks.get(network), 1.0, grouping)
    assert sum(each.size_bytes for each in sent) == work.parameter_bytes(networks.get(network))
    ready = [each.ready_seconds for each in sent]
    assert ready == sorted(ready) and ready[-1] <= 1.0 + 1e-12


def test_buckets_are_small_first_and_full_then():
    sent = overlap.gradients(networks.get("resnet50"), 1.0, "bucket")
    assert [each.size_bytes >= size for each, size in zip(sent, (2**20, 25 * 2**20, 25 * 2**20), strict=False)] == [True] * 3
    assert len(sent) < 8
    layers = {each.name: each.ready_seconds for each in overlap.gradients(networks.get("resnet50"), 1.0, "layer")}
    held = [(bucket.ready_seconds, *(layers[name] for name in bucket.name.split(" to "))) for bucket in sent]
    assert all(ready == last for ready, _, last in held)  # a bucket is sent when all that it holds is there
    assert sum(first < last for _, first, last in held) >= 3
