"""The gate before the ranking: faults are planted in a right campaign, and each must be refused for its own reason."""

import pandas as pd
import pytest

from analysis.proof import sameness
from analysis.records import reader
from analysis.trials import summary as trials

PYTORCH = "pytorch-2.13.0-alexnet_cifar-128-fp32-stock"
TENSORFLOW = "tensorflow-2.21.0-alexnet_cifar-128-fp32-stock"


def judge(made, folder):
    return {name: judged.reasons for name, judged in all_of(made, folder).items()}


def all_of(made, folder):
    return sameness.judge(trials.without_diverged(reader.read(made.write(folder))))


def remarks(made, folder):
    return {name: judged.remarks for name, judged in all_of(made, folder).items()}


def scale_losses(rows, factor, from_step=1):
    for row in rows:
        if row["last_step"] >= from_step:
            row["loss"] *= factor


def test_a_campaign_without_faults_is_verified(made, tmp_path):
    assert judge(made, tmp_path) == {PYTORCH: [], TENSORFLOW: []}


def test_a_trial_without_a_check_is_not_verified(made, tmp_path):
    made.processes_of(PYTORCH)[0]["check"] = ""
    assert judge(made, tmp_path) == {PYTORCH: ["no check against the reference was made"], TENSORFLOW: []}


def test_one_check_that_says_different_outweighs_those_that_say_same(made, tmp_path):
    made.processes_of(PYTORCH)[3].update(check="different", check_reason="gradient of dense1.weight")
    assert judge(made, tmp_path) == {PYTORCH: ["different from the reference: gradient of dense1.weight"], TENSORFLOW: []}


def test_what_a_proof_could_not_compare_is_a_remark(made, tmp_path):
    for process in made.processes_of(PYTORCH):
        process["check_reason"] = "running statistics were not compared: hidden"
    assert judge(made, tmp_path) == {PYTORCH: [], TENSORFLOW: []}
    assert remarks(made, tmp_path)[PYTORCH] == ["running statistics were not compared: hidden"]


def test_a_process_that_failed_as_different_speaks_against_the_others(made, tmp_path):
    made.processes_of(PYTORCH)[3].update(status="failed", reason="different: layer conv2d1: output (32, 31, 31)")
    assert judge(made, tmp_path)[PYTORCH] == ["different: layer conv2d1: output (32, 31, 31)"]


def test_another_parameter_count_is_refused(made, tmp_path):
    made.processes_of(TENSORFLOW)[1]["parameters"] = 85_099
    assert judge(made, tmp_path) == {PYTORCH: [], TENSORFLOW: ["built 85,099 parameters, alexnet_cifar has 85,098"]}


def test_a_missing_parameter_count_is_refused(made, tmp_path):
    made.processes_of(TENSORFLOW)[1]["parameters"] = ""
    assert judge(made, tmp_path)[TENSORFLOW] == ["built an unknown number of parameters, alexnet_cifar has 85,098"]


def test_of_two_that_disagree_neither_is_believed(made, tmp_path):
    scale_losses(made.windows_of(TENSORFLOW), 1.001)
    reasons = judge(made, tmp_path)
    assert reasons[PYTORCH] == ["disagrees with tensorflow 2.21.0 stock, and nothing says which is right: loss 2.39 for 2.39239 "
                                "at step 1: 0.1 % apart, 0.001 % allowed"]
    assert "disagrees with pytorch 2.13.0 stock" in reasons[TENSORFLOW][0]


def test_of_two_that_disagree_the_one_that_fails_another_check_is_the_wrong_one(made, tmp_path):
    scale_losses(made.windows_of(TENSORFLOW), 1.001)
    made.processes_of(TENSORFLOW)[0].update(check="different", check_reason="loss 2.4 for 2.39")
    assert judge(made, tmp_path) == {PYTORCH: [], TENSORFLOW: ["different from the reference: loss 2.4 for 2.39"]}


def test_of_three_the_one_that_strays_is_named(made, tmp_path):
    jax = made.add_trial("jax", "alexnet_cifar", 128)
    scale_losses(made.windows_of(PYTORCH), 1.001)
    reasons = judge(made, tmp_path)
    assert (reasons[TENSORFLOW], reasons[jax]) == ([], [])
    assert reasons[PYTORCH] == ["strays from 2 of its 3 peers, such as tensorflow 2.21.0 stock: loss 2.39239 for 2.39 at step 1: "
                                "0.1 % apart, 0.001 % allowed"]


def test_of_three_that_all_disagree_none_is_believed_not_even_the_middle_one(made, tmp_path):
    jax = made.add_trial("jax", "alexnet_cifar", 128)
    scale_losses(made.windows_of(PYTORCH), 1.001)
    scale_losses(made.windows_of(jax), 0.999)
    assert all("nothing says which is right" in reasons[0] for reasons in judge(made, tmp_path).values())


def test_two_against_two_decide_nothing(made, tmp_path):
    others = [made.add_trial(framework, "alexnet_cifar", 128) for framework in ("jax", "paddle")]
    for name in others:
        scale_losses(made.windows_of(name), 1.001)
    assert all(judge(made, tmp_path).values())


def test_losses_that_part_later_are_refused_at_the_step_where_they_part(draw_records, tmp_path):
    made = draw_records(networks=("lstm32",))
    scale_losses(made.windows_of("tensorflow-2.21.0-lstm32-16-fp32-stock"), 1.05, from_step=12)
    reasons = judge(made, tmp_path)
    assert all("at step 12: 4.8 % apart, 0.15 % allowed" in reason[0] for reason in reasons.values())


def test_a_framework_that_stops_learning_is_refused_even_where_single_losses_are_chaotic(made, tmp_path):
    made.windows_of(PYTORCH)  # AlexNet-R's losses are chaotic from its sixth step on
    for row in made.windows_of(TENSORFLOW):
        if row["last_step"] > 8:
            row["loss"] = 4.5
    assert all("median loss" in reason[0] for reason in judge(made, tmp_path).values())


def test_a_process_that_strays_from_its_siblings_is_named(made, tmp_path):
    scale_losses([row for row in made.windows_of(PYTORCH) if row["process"] == 2], 1.01)
    reasons = judge(made, tmp_path)
    assert reasons[PYTORCH][0].startswith("process 2 strays from the trial's other processes: loss 2.4139 for 2.39 at step 1")
    assert reasons[TENSORFLOW] == []


def test_trials_without_a_common_step_are_not_verified(made, tmp_path):
    for row in made.windows_of(TENSORFLOW):
        row["last_step"] += 100_000
    assert all("no step at which both recorded a loss" in reason[0] for reason in judge(made, tmp_path).values())


@pytest.mark.parametrize(("field", "other"), [
    ("batch", 7), ("devices", 7), ("device_kind", "cuda"), ("precision", "bf16"), ("data", "real"),
])
def test_only_like_is_compared_with_like(made, tmp_path, field, other):
    scale_losses(made.windows_of(TENSORFLOW), 1.001)
    made.trial(TENSORFLOW)[field] = other
    if field in ("batch", "devices"):
        made.trial(TENSORFLOW)["global_batch"] = 7
    assert judge(made, tmp_path) == {PYTORCH: [], TENSORFLOW: []}


def test_tunings_and_releases_are_peers(made, tmp_path):
    scale_losses(made.windows_of(TENSORFLOW), 1.001)
    made.trial(TENSORFLOW).update(tuning="tuned", threads=1)
    assert all(judge(made, tmp_path).values())


@pytest.mark.parametrize(("factor", "verified"), [(1.2, True), (1.5, False)])
def test_dropout_compares_the_first_step_loosely(made, tmp_path, factor, verified):
    for trial in made.meta["trials"]:
        trial["dropout"] = True
    scale_losses(made.windows_of(TENSORFLOW), factor)
    scale_losses(made.windows_of(TENSORFLOW), 3.0, from_step=2)  # what follows is another random stream
    assert all(bool(reasons) != verified for reasons in judge(made, tmp_path).values())


def test_several_devices_are_peers_of_one_with_the_same_global_batch(made, tmp_path):
    two = made.add_trial("jax", "alexnet_cifar", 64, devices=2)
    assert judge(made, tmp_path / "right") == {PYTORCH: [], TENSORFLOW: [], two: []}
    scale_losses(made.windows_of(two), 1.001)
    assert judge(made, tmp_path / "wrong")[two] == [
        "strays from 2 of its 3 peers, such as pytorch 2.13.0 stock: loss 2.39239 for 2.39 at step 1: 0.1 % apart, 0.001 % allowed"]


def test_another_global_batch_is_no_peer(made, tmp_path):
    two = made.add_trial("jax", "alexnet_cifar", 128, devices=2)
    scale_losses(made.windows_of(two), 2.0)
    made.trial(two)["trial"] = "jax on two"
    for row in [*made.processes_of(two), *made.windows_of(two)]:
        row["trial"] = "jax on two"
    assert judge(made, tmp_path)["jax on two"] == []


def test_a_strategy_that_loses_is_no_peer_of_one_that_does_not(made, tmp_path):
    lossy = made.add_trial("jax", "alexnet_cifar", 64, devices=2)
    made.trial(lossy)["strategy"] = "one_bit"
    scale_losses(made.windows_of(lossy), 1.1)
    assert judge(made, tmp_path / "one bit") == {PYTORCH: [], TENSORFLOW: [], lossy: []}
    made.trial(lossy)["strategy"] = "ring"
    assert "strays from 2 of its 3 peers" in judge(made, tmp_path / "ring")[lossy][0]


def test_with_batch_norm_only_rows_of_as_many_devices_are_peers(draw_records, tmp_path):
    made = draw_records(networks=("resnet56",))
    two = made.add_trial("jax", "resnet56", 8, devices=2)
    scale_losses(made.windows_of(two), 1.1)
    assert judge(made, tmp_path / "one")[two] == []
    also = made.add_trial("tensorflow", "resnet56", 8, devices=2)
    assert "jax 1.0 stock on 2 devices" in judge(made, tmp_path / "two")[also][0]


def test_of_two_trials_the_one_that_allows_more_decides_in_either_order():
    plain, lossy = ({"network": "fcn5", "precision": "fp32", "batch": 4, "devices": 2, "strategy": strategy}
                    for strategy in ("ddp", "one_bit"))
    curves = [pd.Series([2.3, loss], index=[1, 2]) for loss in (2.0, 2.001)]
    assert sameness.disagreement(*curves, plain).endswith("at step 2: 0.05 % apart, 0.0041 % allowed")
    assert [sameness.disagreement(*curves, *trials) for trials in ((plain, lossy), (lossy, plain))] == ["", ""]


def test_peers_of_several_strategies_are_told_apart(made, tmp_path):
    names = {strategy: made.add_trial("jax", "alexnet_cifar", 64, devices=2, strategy=strategy)
             for strategy in ("ddp", "ring", "tree")}
    scale_losses(made.windows_of(names["ddp"]), 1.001)
    made.meta["trials"] = [trial for trial in made.meta["trials"] if trial["devices"] == 2]
    made.processes = [row for row in made.processes if row["trial"] in names.values()]
    made.windows = [row for row in made.windows if row["trial"] in names.values()]
    assert judge(made, tmp_path)[names["ddp"]][0].startswith(
        "strays from 2 of its 3 peers, such as jax 1.0 stock on 2 devices with ring: loss ")


def test_of_two_proven_rows_that_disagree_both_stay_verified_with_a_remark(made, tmp_path):
    made.prove_each_process()
    scale_losses(made.windows_of(TENSORFLOW), 1.001)
    assert judge(made, tmp_path / "reasons") == {PYTORCH: [], TENSORFLOW: []}
    assert remarks(made, tmp_path / "remarks") == {
        PYTORCH: ["losses do not agree with those of tensorflow 2.21.0 stock: loss 2.39 for 2.39239 at step 1: "
                  "0.1 % apart, 0.001 % allowed"],
        TENSORFLOW: ["losses do not agree with those of pytorch 2.13.0 stock: loss 2.39239 for 2.39 at step 1: "
                     "0.1 % apart, 0.001 % allowed"]}


def test_a_faulty_row_beside_two_honest_ones_refuses_only_itself_and_is_compared_with_none(made, tmp_path):
    jax = made.add_trial("jax", "alexnet_cifar", 128)
    made.prove_each_process()
    scale_losses(made.windows_of(jax), 1.5)
    made.processes_of(jax)[3].update(check="different", check_reason="after the timed windows: nothing was trained")
    assert judge(made, tmp_path / "reasons") == {
        PYTORCH: [], TENSORFLOW: [], jax: ["different from the reference: after the timed windows: nothing was trained"]}
    assert remarks(made, tmp_path / "remarks") == {PYTORCH: [], TENSORFLOW: [], jax: []}


def test_two_proven_rows_do_not_outvote_a_third(made, tmp_path):
    jax = made.add_trial("jax", "alexnet_cifar", 128)
    made.prove_each_process()
    scale_losses(made.windows_of(PYTORCH), 1.001)
    assert judge(made, tmp_path / "reasons") == {PYTORCH: [], TENSORFLOW: [], jax: []}
    said = remarks(made, tmp_path / "remarks")
    assert said[PYTORCH][0].startswith("losses do not agree with those of 2 of 2 peers, such as tensorflow 2.21.0 stock: loss ")
    assert all("those of pytorch 2.13.0 stock: loss 2.39 for 2.39239 at step 1" in said[name][0] for name in (TENSORFLOW, jax))


def test_a_proven_process_that_strays_from_its_siblings_is_still_refused(made, tmp_path):
    made.prove_each_process()
    scale_losses([row for row in made.windows_of(PYTORCH) if row["process"] == 2], 1.01)
    assert judge(made, tmp_path)[PYTORCH][0].startswith("process 2 strays from the trial's other processes: loss ")


def test_proven_rows_with_dropout_compare_no_losses(made, tmp_path):
    for trial in made.meta["trials"]:
        trial["dropout"] = True
    made.prove_each_process()
    scale_losses(made.windows_of(TENSORFLOW), 1.5)
    scale_losses([row for row in made.windows_of(PYTORCH) if row["process"] == 2], 1.5)
    assert judge(made, tmp_path / "reasons") == {PYTORCH: [], TENSORFLOW: []}
    said = ["dropout: losses not compared with those of other rows, which drop other units"]
    assert remarks(made, tmp_path / "remarks") == {PYTORCH: said, TENSORFLOW: said}


@pytest.mark.parametrize(("rate", "frozen", "is_proven"), [
    (0.01, 0.0, True), (1.2, 0.99, True), (0.99, 1.0, True), (1.0, 1.0, False), (float("inf"), 1.0, False), ("", 1.0, False)])
def test_a_proof_that_could_not_see_a_runner_that_trains_nothing_proves_nothing(made, tmp_path, rate, frozen, is_proven):
    made.prove_each_process()
    made.processes_of(PYTORCH)[3].update(proof_rate_error=rate, proof_frozen_share=frozen)
    if rate == "":
        for row in made.processes_of(PYTORCH):
            row["proof_rate_error"] = ""
    reasons = [] if is_proven else ["unproven: the proof could not have seen a runner that trains nothing"]
    assert judge(made, tmp_path) == {PYTORCH: reasons, TENSORFLOW: []}


def test_a_row_whose_proof_says_nothing_of_its_strength_is_unproven(made, tmp_path):
    made.prove_each_process()
    for row in made.processes_of(PYTORCH):
        row.update(proof_rate_error="", proof_frozen_share="", proof_gradient_error="")
    scale_losses(made.windows_of(PYTORCH), 1.001)
    assert judge(made, tmp_path / "reasons") == {
        PYTORCH: ["unproven: the records do not say what the proof could see"], TENSORFLOW: []}
    assert remarks(made, tmp_path / "remarks") == {PYTORCH: [], TENSORFLOW: []}


def test_a_row_without_a_check_is_not_called_unproven_besides(made, tmp_path):
    made.prove_each_process(rate="", frozen="", gradient="")
    for row in made.processes_of(PYTORCH):
        row["check"] = ""
    assert judge(made, tmp_path)[PYTORCH] == ["no check against the reference was made"]
