"""What XLA's program says of kernels without a name, in JAX's text and in TensorFlow's."""

import subprocess
from pathlib import Path

import networks
from runners.jax.fusions import meanings_of

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


KERNELS = ["fusion_83", "fusion_84", "fusion", "loop_add_fusion", "nvjet_sm90_tst_64x256_64x5_2x1_v_bz_NNN"]
# Builds TensorFlow's runner, reads the real program, then the one above in its place.
IN_TENSORFLOW = """
import numpy as np
from runners.protocol import Task
from runners.tensorflow.runner import Runner
for tuning in ("compiled", "stock"):
    runner = Runner(Task({network}, 4, tuning=tuning))
    runner.feed(np.zeros((1, 4, *{network}["input_shape"])), np.zeros((1, 4)), "device")
    if tuning == "compiled":
        program = runner._program()
        print("ENTRY" in program, " fusion(" in program, " calls=%" in program)
    runner._program = lambda: {program!r}
    print(sorted(runner.meanings({kernels}).items()))
    print(runner.meanings({kernels} + ["fusion_99"]))
    runner._program = lambda: int("no text")
    print(runner.meanings({kernels}))
"""


def test_a_nameless_fusion_is_what_is_heavy_in_it_or_what_it_computes_first_or_a_copy():
    found = meanings_of(lambda: PROGRAM, [*KERNELS, "fusion_99"])
    assert found == {"fusion_83": "reduce", "fusion_84": "logistic", "fusion": "copy"}


def test_xla_is_not_asked_where_all_kernels_have_names():
    assert meanings_of(None, ["loop_add_fusion", "nvjet_sm90_tst_64x256_64x5_2x1_v_bz_NNN"]) == {}


def test_tensorflow_names_all_fusions_or_none(interpreter_of):
    script = IN_TENSORFLOW.format(network=networks.get("tiny_fcn").to_json(), kernels=KERNELS, program=PROGRAM)
    done = subprocess.run([interpreter_of("tensorflow"), "-c", script], capture_output=True, text=True,
                          cwd=Path(__file__).parents[3], check=True)
    assert done.stdout.splitlines() == [
        "True True True", "[('fusion', 'copy'), ('fusion_83', 'reduce'), ('fusion_84', 'logistic')]", "{}", "{}", "[]", "{}", "{}"]
