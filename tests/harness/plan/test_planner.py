"""A suite becomes trials: each combination once, what cannot be with its reason, and processes in an order that is fair."""

from dataclasses import replace

import pytest

from harness.plan import memory
from harness.plan.planner import Machine, Trial, estimate_seconds, execution_order, make_trials
from harness.plan.suite import Suite

CPU = Machine("cpu", cores=4, devices=1)
CUDA = Machine("cuda", cores=4, devices=2)


def plan(suite: dict, machine: Machine = CPU, sets: tuple[str, ...] = ("mnist",)) -> list[Trial]:
    releases = {spec: spec.partition("==")[2] or "2.13.0" for spec in suite.get("frameworks", ["pytorch"])}
    suite = Suite.model_validate({"frameworks": list(releases), "networks": "tiny_fcn", "batches": 4, "threads": 1, **suite})
    return make_trials(suite, releases, machine, lambda name: name in sets)


def outcomes(suite: dict, field: str, **options) -> list[tuple[object, str, str]]:
    return [(getattr(trial, field), trial.status, trial.reason) for trial in plan(suite, **options)]


def test_a_suite_is_written_out_whole():
    tiny_fcn = {"network": "tiny_fcn", "learning_rate": 0.05, "parameters": 861, "dropout": False}
    tiny_dropout = {"network": "tiny_dropout", "batch": 4, "learning_rate": 0.01, "parameters": 1162, "dropout": True}
    same = {"devices": 1, "device_kind": "cpu", "threads": 2, "precision": "fp32", "tuning": "stock", "data": "host",
            "processes_planned": 3}
    suite = {"frameworks": ["pytorch", "jax==0.9.0"], "networks": {"tiny_fcn": {"batches": [4, 8]}, "tiny_dropout": {}},
             "batches": (), "threads": 2, "processes": 3}
    # A step costs 2 x 768 multiply-adds a sample forward, the weights' gradients as many, the inputs' all but the first layer's.
    assert plan(suite) == [
        Trial(framework="pytorch", release="2.13.0", batch=4, flops_per_step=17856, **tiny_fcn, **same),
        Trial(framework="jax", release="0.9.0", batch=4, flops_per_step=17856, **tiny_fcn, **same),
        Trial(framework="pytorch", release="2.13.0", batch=8, flops_per_step=35712, **tiny_fcn, **same),
        Trial(framework="jax", release="0.9.0", batch=8, flops_per_step=35712, **tiny_fcn, **same),
        Trial(framework="pytorch", release="2.13.0", flops_per_step=500160, **tiny_dropout, **same),
        Trial(framework="jax", release="0.9.0", flops_per_step=500160, **tiny_dropout, **same),
    ]


def test_a_trials_name_tells_it_from_every_other():
    suite = {"frameworks": ["pytorch==2.12.0", "pytorch==2.13.0"], "batches": [4, 8], "threads": [1, 2],
             "precisions": ["fp32", "bf16"], "tunings": ["stock", "tuned"], "data": ["device", "host"]}
    names = [trial.trial for trial in plan(suite)]
    assert len(set(names)) == len(names) == 2**6
    assert names[0] == "pytorch-2.12.0-tiny_fcn-b4-cpux1-t1-fp32-stock-device"
    assert plan({"devices": 2}, CUDA)[0].trial == "pytorch-2.13.0-tiny_fcn-b4-cudax2-ddp-fp32-stock-host"
    assert plan({"devices": 2})[0].trial == "pytorch-2.13.0-tiny_fcn-b4-cpux2-ddp-t1-fp32-stock-host"


def test_a_value_given_twice_is_one_trial():
    suite = {"frameworks": ["pytorch", "pytorch==2.13.0"], "batches": [4, 4], "threads": ["all", 4],
             "precisions": ["fp32", "fp32"], "data": ["auto", "host"]}
    assert [trial.trial for trial in plan(suite)] == ["pytorch-2.13.0-tiny_fcn-b4-cpux1-t4-fp32-stock-host"]


def test_what_a_suite_skips_is_not_planned():
    suite = {"frameworks": ["pytorch", "jax"], "tunings": ["stock", "tuned"], "precisions": ["fp32", "bf16"],
             "skip": [{"framework": "jax", "tuning": "tuned"}, {"precision": "bf16", "network": "tiny_fcn"}]}
    assert [(trial.framework, trial.tuning, trial.precision) for trial in plan(suite)] == [
        ("pytorch", "stock", "fp32"), ("jax", "stock", "fp32"), ("pytorch", "tuned", "fp32")]
    several = {"frameworks": ["pytorch", "tensorflow==2.21.0"], "devices": [1, 2], "strategies": ["default", "multi_worker"],
               "skip": [{"framework": "pytorch", "strategy": "multi_worker"}, {"framework": "tensorflow", "devices": 1}]}
    assert [(trial.framework, trial.devices, trial.strategy) for trial in plan(several, CUDA)] == [
        ("pytorch", 1, ""), ("pytorch", 2, "ddp"), ("tensorflow", 2, "nccl"), ("tensorflow", 2, "multi_worker")]


def test_a_networks_own_settings_are_stronger_than_the_suites():
    own = {"batches": 16, "precisions": "bf16", "tunings": "tuned", "data": "device"}
    trials = plan({"networks": {"tiny_fcn": own, "tiny_cnn": {}}})
    assert [(trial.network, trial.batch, trial.precision, trial.tuning, trial.data) for trial in trials] == [
        ("tiny_fcn", 16, "bf16", "tuned", "device"), ("tiny_cnn", 4, "fp32", "stock", "host")]


def test_without_batches_a_network_brings_its_own():
    assert [trial.batch for trial in plan({"networks": "fcn5", "batches": ()})] == [342, 512, 1024, 2048, 4096]


@pytest.mark.parametrize(("data", "network", "named"), [
    ("auto", "fcn5", "mnist"), ("auto", "resnet56", "host"), ("auto", "tiny_fcn", "host"), ("real", "fcn5", "mnist"),
    ("device", "fcn5", "device"), ("host", "fcn5", "host"), ("mnist", "fcn5", "mnist"),
])
def test_data_is_named_by_what_it_is(data: str, network: str, named: str):
    assert outcomes({"data": data, "networks": network}, "data") == [(named, "planned", "")]


@pytest.mark.parametrize(("suite", "field", "value", "reason"), [
    ({"precision": "tf32"}, "precision", "tf32", "TF32 is a format of NVIDIA's tensor cores; this trial is on a CPU"),
    ({"data": "real", "networks": "resnet56"}, "data", "cifar10",
     "the set cifar10 is not on this machine: dlbench data fetch cifar10, or set DLBENCH_DATA"),
    ({"data": "real"}, "data", "real", "tiny_fcn has no real data set; it is fed by the seeded teacher (data: device or host)"),
    ({"data": "mnist", "networks": "resnet56"}, "data", "mnist", "resnet56 is fed by cifar10, not by mnist"),
    ({"threads": 5}, "threads", 5, "5 threads asked for, this machine has 4 cores"),
    ({"devices": 2, "frameworks": ["reference"]}, "devices", 2,
     "NumPy reference trains on one device here: configs/frameworks/reference.yaml has no key parallel"),
    ({"devices": 2, "strategies": "hierarchical_copy"}, "strategy", "hierarchical_copy",
     "PyTorch has no strategy hierarchical_copy on cpu: it has ddp, ring, tree, gather, host_one, host_all, one_bit, power_sgd, "
     "bf16_compress, tensor, pipeline_gpipe, pipeline_1f1b, fsdp"),
    ({"devices": 3, "scaling": "strong"}, "global_batch", 4, "a global batch of 4 does not divide into 3 equal parts"),
])
def test_what_cannot_be_is_a_trial_with_its_reason(suite: dict, field: str, value: object, reason: str):
    assert outcomes(suite, field) == [(value, "unsupported", reason)]


def test_weak_scaling_keeps_the_batch_of_a_device_and_strong_scaling_the_global_one():
    trials = plan({"devices": [1, 2, 4], "scaling": ["weak", "strong"]})
    assert [(trial.devices, trial.batch, trial.global_batch, trial.strategy, trial.status) for trial in trials] == [
        (1, 4, 4, "", "planned"), (2, 4, 8, "ddp", "planned"), (2, 2, 4, "ddp", "planned"),
        (4, 4, 16, "ddp", "planned"), (4, 1, 4, "ddp", "planned")]
    one_sample = trials[0].flops_per_step // 4
    assert [trial.flops_per_step for trial in trials] == [one_sample * size for size in (4, 8, 4, 16, 4)]


def test_a_batch_that_does_not_divide_is_a_row_beside_one_that_does():
    trials = plan({"devices": 3, "scaling": "strong", "batches": [4, 3]})
    assert [(trial.trial, trial.status) for trial in trials] == [
        ("pytorch-2.13.0-tiny_fcn-b4over3-cpux3-ddp-t1-fp32-stock-host", "unsupported"),
        ("pytorch-2.13.0-tiny_fcn-b1-cpux3-ddp-t1-fp32-stock-host", "planned")]


def test_one_device_has_one_row_whatever_the_strategies():
    trials = plan({"devices": [1, 2], "strategies": ["default", "ddp", "nccl"]})
    assert [(trial.devices, trial.strategy, trial.status) for trial in trials] == [
        (1, "", "planned"), (2, "ddp", "planned"), (2, "nccl", "unsupported")]


def test_more_gpus_than_there_are_is_a_refused_row():
    assert outcomes({"devices": [2, 4]}, "devices", machine=CUDA) == [
        (2, "planned", ""), (4, "unsupported", "4 GPUs asked for, this machine has 2")]


def test_ranks_in_a_container_are_refused_and_one_process_for_all_devices_is_not():
    suite = {"frameworks": ["cntk==2.7-gpu", "mxnet==1.9.1-nv24.02"], "devices": [1, 2]}
    assert [(trial.framework, trial.devices, trial.status, trial.reason) for trial in plan(suite, CUDA)] == [
        ("cntk", 1, "planned", ""), ("mxnet", 1, "planned", ""),
        ("cntk", 2, "unsupported", "Microsoft Cognitive Toolkit (CNTK) 2.7-gpu runs in a container, where its ranks could not "
                                   "reach the driver's socket: several devices need a release that is installed"),
        ("mxnet", 2, "planned", "")]


def test_devices_of_a_cpu_share_its_cores():
    assert [(trial.devices, trial.threads) for trial in plan({"devices": [1, 2, 8], "threads": "all"})] == [(1, 4), (2, 2), (8, 1)]


def test_tf32_is_planned_on_a_gpu():
    found = outcomes({"precisions": ["fp32", "tf32"]}, "precision", machine=CUDA)
    assert found == [("fp32", "planned", ""), ("tf32", "planned", "")]


def test_threads_are_counted_on_a_cpu_and_the_frameworks_own_on_a_gpu():
    assert [trial.threads for trial in plan({"threads": [1, "all", 2]})] == [1, 4, 2]
    assert [trial.threads for trial in plan({"threads": [1, "all", 2]}, CUDA)] == [0]


def many() -> list[Trial]:
    return plan({"batches": [1, 2, 3, 4, 5, 6, 7, 8], "precisions": ["fp32", "tf32"]})


def test_each_round_runs_every_planned_trial_once():
    trials = many()
    planned = sorted(trial.trial for trial in trials if trial.status == "planned")
    order = execution_order(trials, processes=3, seed=1)
    assert len(planned) == 8 < len(trials)
    for process in range(3):
        round_ = order[8 * process:8 * process + 8]
        assert [number for _, number in round_] == [process] * 8
        assert sorted(trial.trial for trial, _ in round_) == planned


def test_rounds_are_shuffled_anew_by_the_seed():
    trials = many()
    order = execution_order(trials, processes=3, seed=1)
    rounds = {tuple(trial.trial for trial, process in order if process == number) for number in range(3)}
    assert len(rounds) == 3
    assert execution_order(trials, processes=3, seed=1) == order
    assert execution_order(trials, processes=3, seed=2) != order


def test_more_processes_begin_with_the_same_rounds():
    trials = many()
    assert execution_order(trials, processes=5, seed=1)[:24] == execution_order(trials, processes=3, seed=1)


def test_the_estimate_grows_with_work_and_windows():
    small, large = plan({"batches": [4, 1_000_000]})
    suite, longer = Suite(windows=8, window_seconds=0.5), Suite(windows=16, window_seconds=0.5)
    assert estimate_seconds(small, suite) == pytest.approx(15 + 4 * 0.5 + 8 * 0.75, rel=1e-3)
    assert estimate_seconds(small, longer) == pytest.approx(15 + 4 * 0.5 + 16 * 0.75, rel=1e-3)
    parts = suite.model_copy(update={"phases": True})
    together = suite.model_copy(update={"prepare_jobs": 3})
    assert estimate_seconds(small, together) == pytest.approx(15 / 3 + 4 * 0.5 + 8 * 0.75, rel=1e-3)
    assert estimate_seconds(small, parts) == pytest.approx(15 + 4 * 0.5 + 8 * 0.75 + 5 * (8 * 0.75 + 4 * 0.5), rel=1e-3)
    step = 17856 / 4 * 1e6 / 5e10
    assert estimate_seconds(large, suite) == pytest.approx(15 + 8 * step + 4 * 0.5 + 8 * 0.75, rel=1e-3)


def test_a_gpu_that_is_not_there_is_a_refused_row_and_not_an_attempt():
    suite = Suite(networks=["tiny_fcn"], device="cuda")
    (trial,) = make_trials(suite, {"pytorch": "2.13.0"}, Machine("cuda", 2, 0), lambda name: False)
    assert (trial.status, trial.reason) == ("unsupported", "no NVIDIA GPU answers on this machine")


@pytest.mark.parametrize("framework", ["pytorch==2.13.0", "jax==0.10.2", "tensorflow==2.21.0", "paddle==3.3.1", "mxnet==1.9.1", "cntk==2.7"])
def test_a_framework_that_has_several_devices_has_several_nodes(framework):
    [(_, status, reason)] = outcomes({"frameworks": [framework], "nodes": [2], "devices": [1]}, "nodes", machine=Machine("cpu", 4, 1, nodes=2))
    assert (status, reason) == ("planned", "")


def test_a_framework_that_stays_on_one_node_says_why():
    [(_, status, reason)] = outcomes({"frameworks": ["reference"], "nodes": [2], "devices": [1]}, "nodes", machine=Machine("cpu", 4, 1, nodes=2))
    assert status == "unsupported" and "configs/frameworks/reference.yaml has no key parallel" in reason


@pytest.mark.parametrize(("network", "batch", "gibibytes", "fit"), [
    # Five tuned ResNet-50s ran out of the memory of an H100, and so did four beside small networks.
    ("resnet50", 256, 79.6, 3), ("resnet50", 256, 140, 6), ("lstm32", 256, 79.6, 20), ("resnet50", 256, 8, 1), ("resnet50", 256, None, 20)])
def test_a_gpu_holds_so_many_processes_that_wait(network, batch, gibibytes, fit):
    [trial] = plan({"networks": network, "batches": batch, "precisions": "bf16", "tunings": "tuned"}, CUDA)
    assert trial.framework == "pytorch"
    assert memory.fitting([trial] * 20, gibibytes and gibibytes * 2**30) == fit
    assert memory.fitting([replace(trial, device_kind="cpu")] * 20, 1.0) == 20


def test_a_gpu_holds_fewer_processes_of_frameworks_whose_pools_double():
    """Two of ResNet-50 in tf32 held 48.6 GiB each, and sixteen of six networks ran out of an H200's 139.8 GiB."""
    [trial] = plan({"networks": "resnet50", "batches": 256, "precisions": "tf32"}, CUDA)
    trials = [replace(trial, framework=framework) for framework in ("pytorch", "tensorflow", "jax")]
    assert [memory.fitting([each] * 20, 139.8 * 2**30) for each in trials] == [3, 2, 2]
    small = [replace(trial, network="lstm32")] * 13
    assert memory.fitting([*trials, *small], 139.8 * 2**30) == 2
