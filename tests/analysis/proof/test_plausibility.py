"""No gate refuses what a machine can do, and each refuses what it cannot: every bound is tried on both sides."""

import pandas as pd
import pytest

import networks
from analysis.proof import plausibility
from analysis.records import reader
from analysis.trials import summary
from networks import work

PEAK = {"device_kind": "cpu", "threads": 2, "precision": "fp32", "framework": "one", "flops": 1e11, "size": 2048, "when": "before",
        "reason": ""}
GPU = {"name": "GPU", "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16}
LINK = 16 * 32e9 * 128 / 130 / 8


def row(**changes):
    """A measured fcn5 row whose step takes exactly what the peak allows."""
    flops = work.flops_per_step(networks.get("fcn5"), 64)
    seconds = flops / PEAK["flops"]
    return {
        "framework": "one", "release": "1", "network": "fcn5", "batch": 64, "devices": 1, "device_kind": "cpu", "threads": 2,
        "precision": "fp32", "tuning": "stock", "data": "host", "status": "ok", "reason": "", "verified": "yes",
        "global_batch": changes.get("batch", 64) * changes.get("devices", 1),
        "flops_per_step": flops, "step_seconds": seconds, "step_seconds_low": 0.9 * seconds, "step_seconds_high": 1.1 * seconds,
        "mfu": None, "pcie_rx_bytes_per_step": None, "pcie_tx_bytes_per_step": None, **changes}


def judged(*rows, peaks=(PEAK,), gpus=(), cores=64):
    machine = {"gpus": list(gpus), "cpu": {"allowed": cores}}
    return plausibility.apply(pd.DataFrame(rows), {"peaks": list(peaks), "machine": machine}).to_dict("records")


def verdict(*rows, **meta):
    """Whether the last row is verified, and its reason."""
    found = judged(*rows, **meta)[-1]
    return found["verified"], found["reason"]


def in_seconds(seconds, spread=0.0, **changes):
    return row(step_seconds=seconds, step_seconds_low=seconds * (1 - spread), step_seconds_high=seconds * (1 + spread), **changes)


AT_PEAK = row()["step_seconds"]


def test_mfu_is_the_share_of_the_best_peak_of_the_rows_own_precision_threads_and_device():
    peaks = [PEAK, {**PEAK, "flops": 2e11, "framework": "two"}, {**PEAK, "flops": 9e11, "threads": 4},
             {**PEAK, "flops": 9e11, "precision": "bf16"}, {**PEAK, "flops": 9e11, "device_kind": "cuda"}, {**PEAK, "flops": None}]
    assert judged(row(), peaks=peaks)[0]["mfu"] == pytest.approx(0.5)
    assert pd.isna(judged(row(), peaks=[])[0]["mfu"])
    assert pd.isna(judged(row(threads=8), peaks=peaks)[0]["mfu"])


@pytest.mark.parametrize(("network", "share", "remark"), [
    ("fcn5", 1.05, "above the measured peak, but its interval reaches the peak's margin of 10 %"), ("fcn5", 0.99, ""),
    ("alexnet", 1.3, "above the peak: operations are counted for direct convolutions, while FFT and Winograd need fewer"),
])
def test_a_ranked_row_above_the_peak_says_why_it_may_be(network, share, remark):
    flops = work.flops_per_step(networks.get(network), 64)
    found = in_seconds(flops / PEAK["flops"] / share, network=network, flops_per_step=flops)
    assert verdict(found) == ("yes", remark)
    assert judged({**found, "reason": "odd"})[0]["reason"] == "; ".join(filter(None, ["odd", remark]))


def test_mfu_is_a_devices_share_however_many_there_are():
    whole = 4 * row()["flops_per_step"]
    assert judged(row(devices=4, flops_per_step=whole))[0]["mfu"] == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "spread", "verified"), [
    (AT_PEAK, 0.0, "yes"), (AT_PEAK / 1.09, 0.0, "yes"), (AT_PEAK / 1.11, 0.0, "no"), (AT_PEAK / 10, 0.0, "no"),
    (AT_PEAK / 1.2, 0.15, "yes"),  # its interval reaches what the machine can do
    (AT_PEAK / 1.2, 0.05, "no"),
])
def test_a_row_beyond_the_measured_peak_is_refused(seconds, spread, verified):
    found, reason = verdict(in_seconds(seconds, spread))
    assert found == verified
    assert reason.startswith("implausible: at least 1") == (verified == "no")


def test_the_refusal_names_both_rates_and_keeps_what_was_said_before():
    assert verdict(in_seconds(AT_PEAK / 10, reason="no interval: 1 of at least 3 processes")) == (
        "no", "implausible: at least 1e+12 FLOP/s, and this machine's fp32 peak is 1e+11: work or a synchronisation is missing; "
              "no interval: 1 of at least 3 processes")


def test_without_a_peak_no_rate_is_refused():
    assert verdict(in_seconds(AT_PEAK / 1000), peaks=[]) == ("yes", "")


def test_a_half_precision_row_may_reach_what_fp32_reaches():
    bf16 = {**PEAK, "precision": "bf16", "flops": 0.3e11}  # a processor without bf16 instructions
    assert verdict(in_seconds(AT_PEAK, precision="bf16"), peaks=[PEAK, bf16]) == ("yes", "above the bf16 peak: fp32 reaches more here")
    assert verdict(in_seconds(AT_PEAK, precision="bf16"), peaks=[bf16])[0] == "no"


def test_a_convolution_may_beat_its_direct_count_by_what_winograd_and_fourier_save():
    flops, least = work.flops_per_step(networks.get("alexnet_cifar"), 64), plausibility.least_flops("alexnet_cifar", 64)
    assert 1 < flops / least < 25 / 1.5
    changes = {"network": "alexnet_cifar", "flops_per_step": flops}
    assert verdict(in_seconds(0.5 * flops / PEAK["flops"], **changes))[0] == "yes"
    assert verdict(in_seconds(least / PEAK["flops"] / 1.09, **changes))[0] == "yes"
    assert verdict(in_seconds(least / PEAK["flops"] / 1.11, **changes))[0] == "no"


@pytest.mark.parametrize(("kernel", "stride", "saving"), [(1, 1, 1), (1, 2, 1), (3, 1, 6), (5, 1, 25 / 1.5), (7, 2, 16 / 1.5),
                                                          (11, 4, 6)])
def test_what_a_convolution_may_save_grows_with_its_kernel(kernel, stride, saving):
    assert plausibility._saving({"kernel": kernel, "stride": stride}) == pytest.approx(saving)


def test_dense_networks_save_nothing_and_unknown_ones_keep_their_recorded_count():
    assert plausibility.least_flops("fcn5", 64) == work.flops_per_step(networks.get("fcn5"), 64)
    assert plausibility.least_flops("a network of tomorrow", 64) is None
    assert verdict(in_seconds(AT_PEAK / 2, network="a network of tomorrow"))[0] == "no"


@pytest.mark.parametrize(("seconds", "verified"), [(0.10, "yes"), (0.096, "yes"), (0.09, "no"), (0.2, "yes")])
def test_n_devices_are_at_most_n_times_as_fast_as_one(seconds, verified):
    found, reason = verdict(in_seconds(0.1, 0.001), in_seconds(seconds, 0.001, devices=4), peaks=[])
    assert found == verified
    assert (reason == "") if verified == "yes" else reason == (
        "implausible: a step on 4 devices takes at most 0.0901 s, on one at least 0.0999 s: more than 4.2 times as fast")


@pytest.mark.parametrize(("kind", "cores", "seconds", "times"), [
    ("cuda", 2, 0.03, None), ("cuda", 2, 0.02, "4.2"),
    ("cpu", 64, 0.02, None), ("cpu", 64, 0.0115, "8"),  # four processors bring four caches
    ("cpu", 4, 0.026, None), ("cpu", 4, 0.02, "4"),  # of two threads each: four cores are enough for two of them
    ("cpu", 1, 0.06, None), ("cpu", 1, 0.04, "2"),
])
def test_a_split_batch_is_at_most_n_times_as_fast_and_caches_double_that_on_cpus(kind, cores, seconds, times):
    whole, split = in_seconds(0.1, 0.001, device_kind=kind), in_seconds(seconds, 0.001, batch=16, devices=4, device_kind=kind)
    found, reason = verdict(whole, split, peaks=[], cores=cores)
    assert found == ("no" if times else "yes")
    assert reason == ("" if not times else f"implausible: a step on 4 devices takes at most {seconds * 1.001:.3g} s, on one at "
                                           f"least 0.0999 s with the whole batch: more than {times} times as fast")


@pytest.mark.parametrize(("nodes", "verified"), [(1, "no"), (2, "yes")])
def test_each_node_brings_cores_of_its_own(nodes, verified):
    whole, split = (in_seconds(seconds, 0.001, device_kind="cpu", batch=batch, devices=devices, nodes=on)
                    for seconds, batch, devices, on in ((0.1, 64, 1, 1), (0.03, 32, 2, nodes)))
    assert verdict(whole, split, peaks=[], cores=2)[0] == verified


def test_a_split_batch_whose_interval_reaches_what_can_be_is_not_refused():
    whole = in_seconds(0.1, 0.001, device_kind="cuda")
    assert [verdict(whole, in_seconds(0.022, spread, batch=16, devices=4, device_kind="cuda"), peaks=[])[0]
            for spread in (0.001, 0.2)] == ["no", "yes"]


@pytest.mark.parametrize("changes", [{"batch": 32}, {"framework": "two"}, {"precision": "tf32"}, {"step_seconds_low": None}])
def test_rows_that_are_not_alike_or_have_no_interval_do_not_bound_each_other(changes):
    assert verdict({**in_seconds(0.1), **changes}, in_seconds(0.01, devices=4), peaks=[]) == ("yes", "")


@pytest.mark.parametrize("column", ["pcie_rx_bytes_per_step", "pcie_tx_bytes_per_step"])
def test_bytes_beyond_the_link_are_refused_in_either_direction(column):
    def moved(rate, **changes):
        return verdict(in_seconds(0.1, **{column: 0.1 * rate, **changes}), peaks=[], gpus=[GPU])

    assert moved(LINK) == ("yes", "")
    direction = "received" if "rx" in column else "sent"
    assert moved(1.06 * LINK) == ("no", f"implausible: 6.68e+10 bytes/s {direction} over PCIe, whose link carries 6.3e+10")
    assert moved(1.06 * LINK, devices=2) == ("yes", "")


def test_without_a_known_link_no_bytes_are_refused():
    for gpu in ({"pcie_width": 16}, {**GPU, "pcie_width": None}, {**GPU, "pcie_generation_max": 99}):
        assert verdict(in_seconds(0.1, pcie_rx_bytes_per_step=1e15), peaks=[], gpus=[gpu]) == ("yes", "")


def test_rows_that_were_not_measured_are_left_alone():
    failed = row(status="failed", verified="no", reason="crashed: it broke", step_seconds=None, step_seconds_high=None)
    assert judged(failed)[0]["reason"] == "crashed: it broke"


def test_the_gate_stands_in_the_way_from_records_to_trials_csv(made, tmp_path):
    name = made.meta["trials"][0]["trial"]
    seconds = [window["step_seconds"] for window in made.windows_of(name)]
    flops = plausibility.least_flops("alexnet_cifar", 128) / min(seconds)
    tables = {}
    for peak in (flops, flops / 100):
        made.meta["peaks"] = [{**PEAK, "flops": peak}]
        rows = summary.summarise(reader.read(made.write(tmp_path / f"{peak:.0f}"))).set_index("trial")
        tables[peak] = (rows.loc[name, "verified"], rows.loc[name, "mfu"] > 0, rows.loc[name, "reason"][:11])
    assert tables == {flops: ("yes", True, ""), flops / 100: ("no", True, "implausible")}
