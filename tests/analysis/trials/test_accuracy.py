"""Whether a row alone needs fewer epochs than the kept reference, from the epochs of each."""

from types import SimpleNamespace

import pandas as pd
import pytest

from analysis.trials import accuracy

TRIAL = {"trial": "row", "network": "digits", "global_batch": 100, "precision": "fp32", "data": "mnist",
         "device_kind": "cpu"}
KEPT = {"network": "digits", "batch": 100, "precision": "fp32", "data": "mnist", "at_most_epochs": 20}
SLOW = [4, 5, 4, 3, 5, 4, 4, 3, 5, 4, 6, 4, 3, 4, 5, 4, 4, 5, 3, 4]


def campaign(counts, first_seed=1, most=20, **reference):
    """A campaign of one row whose seeds need these epochs; those that need more than `most` miss the target."""
    rows = pd.DataFrame([
        {"process": process, "seed": first_seed + process, "epoch": min(count, most),
         "test_accuracy": 0.9 if count <= most else 0.8, "witness_share": 1.0}
        for process, count in enumerate(counts)])
    return SimpleNamespace(
        trials=[TRIAL], meta={"suite": {"until": {"target": 0.88, "at_most_epochs": most}},
                              "reference_epochs": [{**KEPT, **reference}] if reference else None},
        rows=lambda table, trial: rows, ok_rows=lambda table, trial: rows[rows["test_accuracy"] > 0.88])


def of(*runs):
    return {f"good {number}": {str(seed): count for seed, count in enumerate(run, start=1)}
            for number, run in enumerate(runs)}


def reasons(found):
    return accuracy.against(found, TRIAL, 1.0)


@pytest.mark.parametrize("first_seed", [1, 101])
def test_fewer_epochs_than_the_reference_are_refused_with_the_same_seeds_and_with_others(first_seed):
    (reason,) = reasons(campaign([2, 3, 2, 2, 3], first_seed, epochs=of(SLOW)))
    assert reason.startswith("converges in fewer epochs than the kept reference: 2.4 in the mean, the reference 4.15")
    assert reasons(campaign(SLOW[:5], first_seed, epochs=of(SLOW))) == []
    assert reasons(campaign([9, 9, 9, 9, 9], first_seed, epochs=of(SLOW))) == []


def test_seeds_that_are_quick_in_the_reference_too_are_no_fault():
    quick = [1, 1, 1, 1, 1, *SLOW]
    assert reasons(campaign(quick[:5], epochs=of(quick))) == []
    assert len(reasons(campaign(quick[:5], first_seed=101, epochs=of(quick)))) == 1


def test_seeds_that_tie_do_not_hide_a_row_that_is_quick_in_the_others():
    assert len(reasons(campaign([2, 3, 3, 2, 2], epochs=of([5, 3, 4, 4, 5, *SLOW])))) == 1


def test_a_row_is_refused_only_if_it_needs_fewer_than_every_framework_of_the_reference():
    row = [2, 2, 2, 2, 2]
    assert reasons(campaign(row, epochs=of(SLOW, row))) == []
    assert len(reasons(campaign(row, epochs=of(SLOW, SLOW)))) == 1


@pytest.mark.parametrize("first_seed", [1, 101])
def test_seeds_that_miss_the_target_count_so_few_epochs_allowed_do_not_hide_or_fake_a_fault(first_seed):
    assert reasons(campaign(SLOW[:8], first_seed, most=3, epochs=of(SLOW))) == []
    assert len(reasons(campaign([2, 2, 2, 2, 2], first_seed, most=2, epochs=of(SLOW)))) == 1


def test_the_report_says_what_the_reference_needs_or_why_there_is_none():
    def said(*given, **reference):
        return accuracy.reference_sentence(campaign(*given, **reference), [TRIAL])

    assert said(SLOW[:5]) == ""
    assert said(SLOW[:5], reason="no run is kept") == (
        "No row is compared with a reference: no run is kept. So rows that all converge too fast would not be seen.")
    assert said(SLOW[:5], epochs=of(SLOW)) == (
        "Mean epochs of the kept reference: good 0 4.15 (20 seeds); no row needs fewer than chance explains "
        "(permutation test).")
    assert "1 of 1 rows need fewer than chance explains" in said([2, 2, 2, 2, 2], epochs=of(SLOW))
    other = campaign([2, 2, 2, 2, 2], epochs=of(SLOW))
    other.meta["reference_epochs"][0]["precision"] = "bf16"
    assert accuracy.reference_sentence(other, [TRIAL]) == "" and reasons(other) == []
