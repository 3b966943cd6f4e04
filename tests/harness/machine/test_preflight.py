"""The gate: what stops a campaign, what does not, and what --allow-dirty leaves in the records."""

import pytest

from harness.errors import WrongUse
from harness.machine import preflight

CLEAN = {"index": 3, "cuda_index": 0, "name": "NVIDIA H200", "processes": [], "throttle_reasons": []}
FOREIGN = {**CLEAN, "processes": [{"pid": 7, "name": "miner"}]}
HOT = {**CLEAN, "throttle_reasons": ["hardware thermal slowdown"]}
TEXTS = {"foreign": "GPU 3 (NVIDIA H200): other processes use it: 7 miner",
         "hot": "GPU 3 (NVIDIA H200): its clock is held down by hardware thermal slowdown"}


def opened(gpu, looks=(), gpus=1, allow_dirty=False):
    """Pass the gate with `gpu`; `looks` are what later looks find. Returns the texts and how often it waited."""
    waits = []
    later = iter(looks)
    texts = preflight.pass_gate({"gpus": [gpu]}, gpus, allow_dirty, lambda: {"gpus": [next(later)]}, waits.append)
    return texts, len(waits)


def test_a_clean_machine_passes_at_once():
    assert opened(CLEAN) == ([], 0)


@pytest.mark.parametrize(("gpu", "text", "remedy"), [
    (FOREIGN, TEXTS["foreign"], "end them yourself, or choose another GPU with CUDA_VISIBLE_DEVICES"),
    (HOT, TEXTS["hot"], "let it cool, raise its power limit, or lock its clocks with nvidia-smi -lgc"),
])
def test_a_dirty_machine_is_refused_with_its_remedy_or_allowed(gpu, text, remedy):
    with pytest.raises(WrongUse) as caught:
        opened(gpu, [gpu] * 3)
    assert str(caught.value) == (f"this machine would spoil the numbers: {text}: {remedy}; "
                                 "or go on with --allow-dirty, which marks every row")
    assert opened(gpu, [gpu] * 3, allow_dirty=True) == ([text], 3)


def test_what_is_gone_at_a_later_look_stops_nothing():
    assert opened(FOREIGN, [FOREIGN, CLEAN]) == ([], 2)


def test_gpus_that_no_trial_uses_may_be_as_they_like():
    assert opened(FOREIGN, gpus=0) == ([], 0)
    assert opened({**FOREIGN, "cuda_index": 1}) == ([], 0)
    assert opened({**FOREIGN, "cuda_index": None}, gpus=8) == ([], 0)
