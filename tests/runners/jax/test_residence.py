"""What JAX, or a library on top of it, places on the device, and when."""

import json
import subprocess

import pytest

import networks

NETWORK = networks.get("tiny_fcn")
OPEN = """
import importlib, json, sys
from unittest import mock
import jax, numpy as np
from runners.protocol import Task
network, module = json.loads(sys.argv[1]), sys.argv[2]
"""
STEP = """
runner = importlib.import_module(module).Runner(Task(network, 2))
runner.feed(np.zeros([2, 2, *network["input_shape"]], np.float32), np.zeros([2, 2], np.int32), sys.argv[3])
with mock.patch.object(jax, "device_put", wraps=jax.device_put) as placed:
    runner.step()
    runner.synchronize()
print(placed.call_count)
"""
# Counts the numbers on the device as the new state is placed.
LOAD = """
runner = importlib.import_module(module).Runner(Task(network, 2))
weights, place, held = runner.parameters(), runner._place, []
def count(*given, **options):
    held.append(sum(array.size for array in jax.live_arrays()))
    return place(*given, **options)
runner._place = count
runner.load(weights)
print(held[0])
"""
ENGINE = """
weights = {f"{layer['name']}.{name}": np.zeros(shape, np.float32)
           for layer in network["layers"] for name, shape in layer["parameters"].items()}
engine = importlib.import_module(module).Jax(Task(network, 2), weights)
print(sum(array.size for array in jax.live_arrays()))
"""


def printed(interpreter, code, module, *words):
    found = subprocess.run([interpreter, "-c", OPEN + code, json.dumps(NETWORK.to_json()), module, *words],
                           capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


@pytest.mark.parametrize("framework", ["jax", "flax", "equinox", "keras_jax"])
@pytest.mark.parametrize(("residence", "calls"), [("device", 0), ("host", 1)])
def test_a_step_places_only_a_batch_that_lies_in_host_memory(interpreter_of, monkeypatch, framework, residence, calls):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    module = f"runners.{framework.partition('_')[0]}.runner"
    assert printed(interpreter_of(framework), STEP, module, residence) == calls


def test_the_old_state_is_gone_before_a_new_one_is_placed(interpreter_of):
    assert printed(interpreter_of("jax"), LOAD, "runners.jax.runner") < NETWORK.parameter_count


def test_a_network_that_only_infers_has_no_momentum(interpreter_of):
    held = printed(interpreter_of("jax"), ENGINE, "runners.jax.inference")
    assert NETWORK.parameter_count <= held < 1.1 * NETWORK.parameter_count
