"""The tuned step sums the last layers' gradients first, and its means are those of `lax.pmean`."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
MEANS = """
import json, os
os.environ.update(XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from runners.jax.step import mean_in_two_parts

SIZES = {"conv1": (3, 3), "conv2": (4, 4), "dense1": (10, 10), "dense2": (5, 5)}
draws = np.random.default_rng(0)
gradients = {layer: {"weight": draws.normal(size=(2, *size)).astype(np.float32)} for layer, size in SIZES.items()}
mesh = Mesh(np.array(jax.devices()), ("devices",))

def on_both(function):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec("devices"),
                                 out_specs=PartitionSpec(), check_vma=False))

layers = ["conv1", "relu1", "conv2", "dense1", "dense2"]
ours = on_both(lambda each: mean_in_two_parts(each, layers, 2))
theirs = on_both(lambda each: lax.pmean(each, "devices"))
equal = jax.tree.map(lambda one, other: bool((one == other).all()), ours(gradients), theirs(gradients))
order = []
for line in ours.lower(gradients).as_text().splitlines():
    if "optimization_barrier" in line:
        order.append("barrier")
    elif "stablehlo.return" not in line and "}) : (tensor<1x" in line:
        order.append(line.split("tensor<1x")[1].split("xf32")[0])
print(json.dumps({"equal": all(jax.tree.leaves(equal)), "layers": list(ours(gradients)), "order": order}))
"""


def test_the_last_layers_are_summed_first_and_the_means_are_equal(interpreter_of):
    done = subprocess.run([interpreter_of("jax"), "-c", MEANS], cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["equal"]
    assert found["layers"] == ["conv1", "conv2", "dense1", "dense2"]
    # 125 of 150 numbers are more than 80 %.
    barrier = found["order"].index("barrier")
    assert sorted(found["order"][:barrier]) == ["10x10", "5x5"]
    assert sorted(found["order"][barrier + 1:]) == ["3x3", "4x4"]
