"""Bytes and bubbles of divided networks follow from the network and from how it was divided."""

import math

import pytest

import networks
from analysis.strategies import dividing, table

S = 4 * networks.get("fcn5").parameter_count
FCN = {"network": "fcn5", "framework": "pytorch", "precision": "fp32", "devices": 2,
       "global_batch": 64}


def sent(strategy, settings, **changes):
    return table.step_bytes({**FCN, "strategy": strategy, **changes}, settings)


@pytest.mark.parametrize("devices", [2, 4])
def test_data_parallel_sends_each_gradient_twice_to_every_other_device(devices):
    assert sent("ddp", "", devices=devices) == 2 * (devices - 1) * S


def test_a_pair_sends_its_output_and_the_gradient_of_its_input_unless_that_is_the_networks():
    """dense1 reads the input; dense2 gives 4096 features, dense3 reads them, dense4 gives 10."""
    settings = "divided products: dense1+dense2, dense3+dense4"
    assert sent("tensor", settings) == 2 * 4 * 64 * (4096 + 4096 + 10)
    # Under autocast dense layers and sigmoids are bf16.
    assert sent("tensor", settings, precision="bf16") == 2 * 2 * 64 * (4096 + 4096 + 10)


def test_a_pipeline_sends_activations_and_gradients_at_each_cut():
    settings = "8 micro-batches; stages that end with sigmoid2, dense4"
    assert sent("pipeline_1f1b", settings) == 2 * 4 * 64 * 4096


def test_a_tied_table_adds_its_gradient_where_two_stages_hold_it():
    tied = 4 * 211 * 48
    trial = {**FCN, "network": "tiny_gpt", "strategy": "pipeline_gpipe", "global_batch": 4}
    settings = "4 micro-batches; stages that end with add2, tied_dense1"
    assert table.step_bytes(trial, settings) == 2 * 4 * 4 * 16 * 48 + 2 * tied


def test_fully_sharded_gathers_twice_and_scatters_once():
    assert sent("fsdp", "gathered in groups that end with dense4") == 3 * S
    # The table is kept between both passes; 211 rows are filled up to 212.
    trial = {**FCN, "network": "tiny_gpt", "strategy": "fsdp"}
    whole = 3 * 4 * networks.get("tiny_gpt").parameter_count
    kept = table.step_bytes(trial, "gathered; kept between the passes: embedding1")
    assert kept == whole - 3 * 4 * 211 * 48 + 2 * 4 * 212 * 48


def test_without_the_runners_words_nothing_is_predicted():
    assert math.isnan(sent("tensor", ""))
    assert math.isnan(sent("ring", "anything"))


def test_the_bubble_is_that_of_equal_stages():
    trial = {**FCN, "devices": 4}
    assert dividing.bubble(trial, "8 micro-batches; stages that end with a") == 3 / 11
    assert math.isnan(dividing.bubble(trial, "divided products: a+b"))
