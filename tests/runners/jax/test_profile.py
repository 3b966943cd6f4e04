"""What JAX's compiled program says of kernels without a name: the text of XLA's fusions, without JAX itself."""

import importlib
import sys
import types

import pytest

PROGRAM = """HloModule jit_step, is_scheduled=true

%fused_computation.83 (param_0.3: f32[16], param_1.3: f32[16,32]) -> f32[32] {
  %param_1.3 = f32[16,32]{1,0} parameter(1)
  %constant.1 = f32[] constant(2)
  %broadcast.6 = f32[16,32]{1,0} broadcast(%constant.1), dimensions={}
  %mul.1 = f32[16,32]{1,0} multiply(%param_1.3, %broadcast.6), metadata={op_name="jit(f)/mul" stack_frame_id=4}
  ROOT %reduce_sum.0 = f32[32]{0} reduce(%mul.1, %constant.0), dimensions={0}, to_apply=%region_1.2
}

%fused_computation.84 (param_0.5: bf16[16,32]) -> (bf16[16,32], bf16[16,32]) {
  %param_0.5 = bf16[16,32]{1,0} parameter(0)
  %convert.3 = f32[16,32]{1,0} convert(%param_0.5)
  %logistic.2 = f32[16,32]{1,0} logistic(%convert.3)
  ROOT %tuple.0 = (bf16[16,32]{1,0}, bf16[16,32]{1,0}) tuple(%logistic.2, %convert.3)
}

%fused_computation.85 (param_0.5: f32[16,32]) -> bf16[16,32] {
  %param_0.5 = f32[16,32]{1,0} parameter(0)
  ROOT %convert.4 = bf16[16,32]{1,0} convert(%param_0.5)
}

ENTRY %main.3 (w.1: f32[64,32], x.1: f32[16,64]) -> (f32[32], f32[16,32]) {
  %fusion.83 = f32[32]{0} fusion(%w.1), kind=kCustom, calls=%fused_computation.83
  %fusion.84 = (bf16[16,32]{1,0}, bf16[16,32]{1,0}) fusion(%x.1), kind=kCustom, calls=%fused_computation.84
  %loop_add_fusion = f32[32]{0} fusion(%w.1), kind=kLoop, calls=%fused_computation.84
  ROOT %fusion = bf16[16,32]{1,0} fusion(%x.1), kind=kCustom, calls=%fused_computation.85
}
"""


@pytest.fixture
def jax_profile(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
    monkeypatch.delitem(sys.modules, "runners.jax.profile", raising=False)
    yield importlib.import_module("runners.jax.profile")
    sys.modules.pop("runners.jax.profile")


def test_a_nameless_fusion_is_what_is_heavy_in_it_or_what_it_computes_first_or_a_copy(jax_profile):
    kernels = ["fusion_83", "fusion_84", "fusion", "loop_add_fusion", "fusion_99", "nvjet_sm90_tst_64x256_64x5_2x1_v_bz_NNN"]
    assert jax_profile.meanings_of(PROGRAM, kernels) == {"fusion_83": "reduce", "fusion_84": "logistic", "fusion": "copy"}
