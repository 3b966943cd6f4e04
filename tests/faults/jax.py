"""JAX's runner with one fault each."""

import os
import re
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.jax import layers, runner, sharding, step
from runners.jax.runner import Runner
from runners.protocol import Different, Unsupported
from tests.faults import planted, rows_of_next_batch

choose_style, initial_parameters, sgd = runner.choose_style, runner.initial_parameters, step.sgd
attend = jax.nn.dot_product_attention


def ceil(x, a):
    kernel, stride, padding = layers.window(a)
    more = [(low, high + step - 1) for (low, high), step in zip(padding, stride, strict=True)]
    return lax.reduce_window(x, -jnp.inf, lax.max, kernel, stride, more)


def default_precision(task, *unroll):
    return choose_style(task, *unroll)._replace(precision=lax.Precision.DEFAULT)


def cudnn_attention(task, unroll, attention):
    return choose_style(task, unroll, "cudnn")


def attend_as_cudnn(q, k, v, implementation, **options):
    """Refuse odd lengths, as JAX's cuDNN attention does, and compute by XLA."""
    if q.shape[1] % 2:
        raise NotImplementedError(f"Unsupported sequence length Q {q.shape[1]}.")
    return attend(q, k, v, implementation="xla", **options)


def attend_to_padding(*arrays, query_seq_lengths, key_value_seq_lengths, **options):
    return attend_as_cudnn(*arrays, **options)


def nesterov(parameters, velocity, gradients, learning_rate, momentum):
    velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    ahead = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    return jax.tree.map(lambda w, d: w - learning_rate * d, parameters, ahead), velocity


def running_averages(x, layer, p, statistics):
    scale = p["scale"] * lax.rsqrt(statistics["variance"] + layer["attributes"]["epsilon"])
    centred = x.astype(jnp.float32) - statistics["mean"]
    normal = centred * scale + p["shift"]
    return normal.astype(x.dtype), statistics


def stale(parameters, velocity, *others):
    moved, velocity = sgd(parameters, velocity, *others)
    second = lax.axis_index("devices") == 1
    return jax.tree.map(lambda old, new: jnp.where(second, old, new), parameters, moved), velocity


def with_image(network):
    image = {"value": np.zeros(network["input_shape"], np.float32)}
    return {**initial_parameters(network), "image": image}


# Pooling that rounds up, as Caffe pools unless told otherwise.
Ceil = planted(Runner, layers, max_pool=ceil)
# No fault: attention as it is called with cuDNN.
OnCudnn = planted(planted(Runner, runner, choose_style=cudnn_attention), jax.nn,
                  dot_product_attention=attend_as_cudnn)
# Tokens attend to the padding of an odd length, whose key is zero.
AttendsToPadding = planted(planted(Runner, runner, choose_style=cudnn_attention), jax.nn,
                           dot_product_attention=attend_to_padding)
# Nesterov's momentum, as Torch's DLBench scripts had it.
Nesterov = planted(Runner, step, sgd=nesterov)
# Batch norm by the running averages while training, as of a layer left in inference mode.
RunningAverages = planted(Runner, layers, batch_norm=running_averages)
# Device 1 never applies an update.
Stale = planted(Runner, step, sgd=stale)
# The devices' gradients are added up and not averaged.
Sum = planted(Runner, lax, pmean=lax.psum)
# The input is among the trained parameters, as DLBench's TensorFlow scripts had it.
TrainableInput = planted(Runner, runner, initial_parameters=with_image)
OtherRows = rows_of_next_batch(Runner)


class DefaultPrecision(planted(Runner, runner, choose_style=default_precision)):
    """JAX as it comes: on a GPU that has TF32, float32 products use it."""

    @staticmethod
    def describe():
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # cuBLAS reads it when CUDA starts
        return Runner.describe()


class CountsDonated(Runner):
    """Says, when its copies are asked for, how many arrays of the state its last step overwrote."""

    def step(self):
        self.before = jax.tree.leaves(self.state)
        super().step()

    def copies(self):
        donated = sum(array.is_deleted() for array in self.before)
        raise Different(f"{donated} of {len(self.before)} arrays donated")


class Threads(Runner):
    """Refuses every task with the number of threads of XLA's pool."""

    def __init__(self, task):
        super().__init__(task)
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        count = sum(name.startswith("tf_XLAEigen") for name in names)
        raise Unsupported(f"{count} threads in XLA's pool")


class Collectives(Runner):
    """Names among its settings what the compiled step moves between devices. No fault."""

    def __init__(self, task):
        super().__init__(task)
        rows = [1, task.batch * task.devices]
        self.feed(np.zeros(rows + list(task.network["input_shape"]), np.int32),
                  np.zeros(rows + list(task.network["target_shape"]), np.int32), "device")
        found = {}
        for shapes, operation in re.findall(
                r"= (\(.*?\)|\S+) (all-\w+|reduce-scatter|collective-permute)\(", self._program()):
            sizes = [np.prod([int(each) for each in shape.split(",") if each])
                     for shape in re.findall(r"\w+\[([\d,]*)\]", shapes)]
            found[operation] = found.get(operation, 0) + int(sum(sizes))
        self.settings = [*self.settings, *(f"{name} {size}" for name, size in found.items())]


# The second of two dense layers is whole on each device, and so are its products: no fault of
# arithmetic, but nothing of it is divided.
Undivided = planted(Runner, sharding, ROWS=sharding.WHOLE, COLUMNS=sharding.WHOLE,
                    SPLIT=sharding.WHOLE)


class TurnsOnDevice(Runner):
    """No fault: parameters are turned as on a GPU."""

    def _turns_on_device(self):
        return True


class StaleOnDevice(Stale):
    """Device 1 never applies an update, and parameters are turned as on a GPU."""

    def _turns_on_device(self):
        return True


class Prepared(TurnsOnDevice):
    """Counts among its settings what reading compiles after a preparation beside a first step."""

    def __init__(self, task):
        jax.clear_caches()  # the process may have run another test
        super().__init__(task)
        rows = [1, task.batch * task.devices]
        self.feed(np.ones(rows + list(task.network["input_shape"]), np.float32),
                  np.zeros(rows + list(task.network["target_shape"]), np.int32), "device")
        self.prepare_reading()
        self.step()
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            if not thread.daemon:
                thread.join()
        compiled = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, *_, **__: compiled.append(event))
        self.parameters()
        found = sum("backend_compile" in event for event in compiled)
        self.settings = [*self.settings, f"compiled {found}"]


class Programs(TurnsOnDevice):
    """Says, when its copies are asked for, how many programs turn its parameters."""

    def __init__(self, task):
        jax.clear_caches()  # the process may have run another test
        super().__init__(task)

    def copies(self):
        found = super().copies()
        raise Different(f"{runner.transposed_by._cache_size()} programs, {len(found)} copies")
