"""The parts of a step: paired differences of nested variants give back the parts that they were made of."""

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.records import reader
from analysis.statistics import bootstrap
from analysis.trials import phases, summary
from tests.analysis import simulated
from tests.analysis.simulated import PHASES

ROOT = Path(__file__).parents[3]


@pytest.fixture
def scaled(draw_records, tmp_path):
    made = draw_records(networks=())
    names = simulated.add_scaling(made, "fcn5", counts=(1, 2), strategies=("ddp", "ring"))
    return made, dict(zip(("one", "ddp", "ring"), names, strict=True)), tmp_path


def read(made, folder):
    return reader.read(made.write(folder / "campaign"))


def test_parts_come_back_with_intervals_that_hold_them(scaled):
    made, names, folder = scaled
    found = phases.of_trial(read(made, folder), names["ring"])
    forward, backward, update = PHASES["fcn5"]
    exposed = simulated.step_seconds("fcn5", "ring", 2)["A"]
    for name, truth in {"forward": forward, "backward": backward, "exposed": exposed, "update": update}.items():
        assert found[name].value == pytest.approx(truth, rel=0.08)
        assert found[name].contains(truth)


def test_what_overlaps_is_hidden_as_far_as_it_takes_longer_alone(scaled):
    made, names, folder = scaled
    campaign = read(made, folder)
    each = simulated.step_seconds("fcn5", "ddp", 2)
    assert phases.of_trial(campaign, names["ddp"])["hidden"].value == pytest.approx(each["A"] - (each["FBA"] - each["FB"]), rel=0.1)


def test_nothing_is_hidden_of_what_waits_for_the_backward_pass_however_long_it_takes_alone(scaled):
    made, names, folder = scaled
    for row in made.phases:
        if (row["trial"], row["variant"]) == (names["ring"], "A"):
            row.update(stop=2 * row["stop"], seconds=2 * row["seconds"])
    found = phases.of_trial(read(made, folder), names["ring"])
    assert found["isolated"].value > 1.5 * found["exposed"].value
    assert found["hidden"] == bootstrap.Estimate(0.0, 0.0, 0.0, found["isolated"].processes)


def test_one_device_has_an_update_and_nothing_to_aggregate_however_noisy_its_parts_are(scaled):
    made, names, folder = scaled
    for row in made.phases:
        if (row["trial"], row["variant"]) == (names["one"], "FBA"):
            row.update(stop=3 * row["stop"], seconds=3 * row["seconds"])  # the same as FB, while others computed
    found = phases.of_trial(read(made, folder), names["one"])
    assert found["update"].contains(PHASES["fcn5"][2])
    assert [name for name in phases.NAMES if math.isnan(found[name].value)] == ["exposed", "isolated", "hidden"]


def test_a_difference_is_paired_so_processes_that_differ_do_not_blur_it(scaled):
    made, names, folder = scaled
    campaign = read(made, folder)
    found = phases.of_trial(campaign, names["ring"])["update"]
    sides = {variant: [own["seconds"].to_numpy() / 10 for _, own in rows.groupby("process")]
             for variant, rows in campaign.phases[campaign.phases["trial"] == names["ring"]].groupby("variant")}
    apart = bootstrap.difference(sides["FBAU"], sides["FBA"])
    assert found.high - found.low < 0.3 * (apart.high - apart.low)


def test_variants_that_were_not_timed_leave_their_parts_unknown(scaled):
    made, names, folder = scaled
    made.phases = [row for row in made.phases if row["variant"] != "A" and (row["trial"], row["variant"]) != (names["ddp"], "FBA")]
    campaign = read(made, folder)
    assert math.isnan(phases.of_trial(campaign, names["ring"])["hidden"].value)
    found = phases.of_trial(campaign, names["ddp"])
    assert [name for name in phases.NAMES if math.isnan(found[name].value)] == ["exposed", "update", "isolated", "hidden"]


def test_the_table_has_the_trials_with_phases_and_their_parts(scaled):
    made, names, folder = scaled
    made.add_trial("jax", "fcn5", 512)
    campaign = read(made, folder)
    table = phases.table(campaign, summary.summarise(campaign))
    assert list(table["trial"]) == list(names.values())
    assert {"forward", "forward_low", "hidden_high", "network", "strategy"} <= set(table)


def test_parts_that_could_not_be_timed_are_remarks_of_the_row_once_a_reason(scaled):
    made, names, folder = scaled
    missed = [(names["ring"], process, part, f"no part '{part}' of a step") for process in range(5) for part in ("FBA", "A")]
    missed += [(names["ddp"], process, "A", "out_of_memory: 20 GiB") for process in (1, 3)]
    keys = {each[:3] for each in missed}
    made.phases = [row for row in made.phases if (row["trial"], row["process"], row["variant"]) not in keys]
    made.phases += [dict(zip(("trial", "process", "variant", "reason"), each, strict=True)) for each in missed]
    told = summary.summarise(read(made, folder)).set_index("trial")["reason"]
    assert "parts FBA, A of the step not timed: no part 'FBA' of a step" in told[names["ring"]]
    assert "part A of the step not timed in 2 of 5 processes: out_of_memory: 20 GiB" in told[names["ddp"]]
    assert "not timed" not in told[names["one"]] and all(reason.count("not timed") < 2 for reason in told)


def test_a_paired_difference_may_be_negative_and_needs_three_processes():
    generator = np.random.default_rng(2)
    below = [-1.0 + 0.1 * generator.standard_normal(6) for _ in range(5)]
    found = bootstrap.paired(below)
    assert found.value == pytest.approx(-1.0, abs=0.1) and found.high < 0
    assert not bootstrap.paired(below[:2]).has_interval


def test_intervals_of_paired_differences_hold_zero_as_often_as_they_say():
    generator = np.random.default_rng(4)
    drawn = [[effect + 0.1 * generator.standard_normal(8) for effect in generator.standard_normal(5)] for _ in range(200)]
    held = [bootstrap.paired(differences).contains(0.0) for differences in drawn]
    assert 0.90 < np.mean(held) < 0.99
