"""JAX alone: pure functions over pytrees, and one jitted step whose state (parameters, velocities, ...) is donated.

`stock` computes images N C H W. `tuned` computes them N H W C, unrolls scans and, on a GPU, lets XLA write products in Triton, as
JAX's GPU performance tips say (by `compiler_options`: XLA_FLAGS would act on both tunings). Weights are turned at the border to
how `jax_layers` stores them. Over several devices the same step runs in `jax.shard_map` on each one's part of the batch, and
`lax.pmean` aggregates the gradients. XLA fixes its CPU threads once a process: see `fix_threads`.
"""

import importlib.metadata
import os
import platform

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from runners.jax.layers import (
    Style,
    cross_entropy,
    dot,
    forward,
    initial_parameters,
    initial_statistics,
)
from runners.jax.profile import NAMELESS, meanings_of, operators_of
from runners.protocol import Product, Unsupported, assert_network
from runners.protocol import Runner as BaseRunner

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
LOSS_SCALE = 1024.0  # fixed, so that an fp16 trajectory can be compared
TUNED_GPU = ("xla_gpu_triton_gemm_any", "xla_gpu_enable_latency_hiding_scheduler")  # the second helps several devices alone
UNROLL = 8  # words of an LSTM in one iteration of the compiled loop, when tuned
TURNED = {  # axes of the canonical array in the order in which this runner stores them
    ("dense", "weight"): (1, 0), ("lstm", "weight_input"): (1, 0), ("lstm", "weight_hidden"): (1, 0),
    ("conv2d", "weight"): {"NCHW": (0, 1, 2, 3), "NHWC": (2, 3, 1, 0)},
}
WHOLE, SPLIT = PartitionSpec(), PartitionSpec("devices")  # on several devices: the same on each, or cut along the first axis
STATE = {"parameters": WHOLE, "velocity": WHOLE, "statistics": SPLIT, "key": WHOLE}


def sgd(parameters, velocity, gradients, learning_rate, momentum):
    velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradients)
    return jax.tree.map(lambda w, v: w - learning_rate * v, parameters, velocity), velocity


class Runner(BaseRunner):
    @staticmethod
    def describe():
        installed = {str(each.metadata["Name"]): each.version for each in importlib.metadata.distributions()}
        libraries = {name: installed[name] for name in sorted(installed) if name.startswith(("jax", "nvidia-cudnn"))}
        # Asking JAX for its devices would fix the CPU's threads, so only where a GPU's plugin can take over.
        plugin = any("cuda" in name for name in libraries) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
        device_name = jax.devices()[0].device_kind if plugin else platform.processor() or platform.machine()
        return {"release": jax.__version__, "device_name": device_name, "libraries": libraries}

    def __init__(self, task):
        self.task = task
        self.devices = find_devices(task)
        self.mesh = Mesh(np.array(self.devices), ("devices",)) if task.devices > 1 else None
        self.network = task.network
        self.style = choose_style(task)
        self.dropout = task.dropout and any(layer["op"] == "dropout" for layer in self.network["layers"])
        self.ops = {layer["name"]: layer["op"] for layer in self.network["layers"]}
        parameters = initial_parameters(self.network, self.style)
        self._reset(parameters)
        shapes = {name: np.shape(array) for name, array in self._canonical(parameters).items()}
        assert_network(self.network, self._output_shapes(), shapes)
        self._write_step()

    def _write_step(self):
        layers, style, several = self.network["layers"], self.style, self.task.devices > 1
        learning_rate, momentum = self.network["learning_rate"], self.network["momentum"]
        scale = LOSS_SCALE if self.task.precision == "fp16" else 1.0

        def scaled_loss(parameters, statistics, key, inputs, targets):
            if several and key is not None:
                key = jax.random.fold_in(key, lax.axis_index("devices"))  # each device drops other units
            outputs, statistics = forward(layers, style, parameters, statistics, key, inputs)
            loss = cross_entropy(outputs[layers[-1]["name"]], targets)
            return scale * loss, (loss[None], statistics)  # one loss a device

        def loss_and_gradients(state, key, inputs, targets):
            gradients, (loss, statistics) = jax.grad(scaled_loss, has_aux=True)(
                state["parameters"], state["statistics"], key, inputs, targets)
            return loss, statistics, jax.tree.map(lambda gradient: gradient / scale, gradients) if scale != 1 else gradients

        def aggregate(gradients):
            return lax.pmean(gradients, "devices") if several else gradients

        def train_step(state, inputs, targets):
            key, now = jax.random.split(state["key"]) if self.dropout else (None, None)
            loss, statistics, gradients = loss_and_gradients(state, now, inputs, targets)
            parameters, velocity = sgd(state["parameters"], state["velocity"], aggregate(gradients), learning_rate, momentum)
            return {"parameters": parameters, "velocity": velocity, "statistics": statistics, "key": key}, loss

        def only_loss(_after, state, inputs, targets):
            return scaled_loss(state["parameters"], state["statistics"], state["key"], inputs, targets)[1]

        def local_gradients(_after, state, inputs, targets):
            loss, statistics, gradients = loss_and_gradients(state, state["key"], inputs, targets)
            return loss, (statistics, gradients)

        def mean_gradients(after, state, inputs, targets):
            loss, (statistics, gradients) = local_gradients(after, state, inputs, targets)
            return loss, (statistics, aggregate(gradients))

        takes = (SPLIT, STATE, SPLIT, SPLIT)
        self.train_step = self._compile(train_step, takes[1:], (STATE, SPLIT), donate_argnums=0)
        self.phases = {  # keep_unused: `_after` orders the steps
            "F": self._compile(only_loss, takes, (SPLIT, SPLIT), keep_unused=True),
            "FB": self._compile(local_gradients, takes, (SPLIT, SPLIT), keep_unused=True),
            "FBA": self._compile(mean_gradients, takes, (SPLIT, (SPLIT, WHOLE)), keep_unused=True),
        }
        self.aggregate = self._compile(aggregate, (WHOLE,), WHOLE, donate_argnums=0)

    def _compile(self, function, takes, gives, **options):
        """Jit `function` of one device; on several each runs it on its own part, as the partition specs say."""
        if self.mesh:
            # check_vma would sum the gradients of replicated parameters by itself, where FB wants those of each device.
            function = jax.shard_map(function, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False)
        flags = TUNED_GPU[:2 if self.mesh else 1] if self.task.device == "cuda" and self.task.tuning == "tuned" else ()
        return jax.jit(function, compiler_options={flag: True for flag in flags} or None, **options)

    def load(self, weights):
        parameters = {}
        for name, array in weights.items():
            layer, _, parameter = name.partition(".")
            parameters.setdefault(layer, {})[parameter] = array.transpose(self._stored_axes(layer, parameter, array.ndim))
        self._reset(parameters)

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5 and self.style.layout == "NHWC":
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        self.ring = list(zip(np.ascontiguousarray(inputs), targets, strict=True))
        if residence == "device":
            self.ring = [self._place(batch) for batch in self.ring]
            jax.block_until_ready(self.ring)
        self.next = 0

    def step(self):
        self.state, self.last_loss = self.settle(self.train_step(self.state, *self.next_batch()))

    def settle(self, results):
        """On several logical CPUs wait for each step: collectives of several steps in flight wait for one another for ever."""
        if self.mesh and self.task.device == "cpu":
            jax.block_until_ready(results)
        return results

    def next_batch(self):
        batch = self._place(self.ring[self.next])  # nothing to do where the ring is on the device
        self.next = (self.next + 1) % len(self.ring)
        return batch

    def synchronize(self):
        jax.block_until_ready(self.state)

    def loss(self):
        return float(np.mean(self.last_loss))

    def gradients(self):
        _, (_, gradients) = self.phases["FBA"](self.no_losses(), self.state, *self._place(self.ring[0]))
        return self._canonical(gradients)

    def parameters(self):
        return self._canonical(self.state["parameters"])

    def copies(self):
        return [self._canonical(held_by(number, self.state["parameters"])) for number in range(len(self.devices))]

    def variant(self, name):
        if name == "FBAU":
            return self
        if name == "A" and not self.mesh:
            raise Unsupported("one device has no gradients to aggregate")
        return Aggregation(self) if name == "A" else Phase(self, self.phases[name])

    def peak_memory(self):
        """Peak of XLA's allocator since the process began, of the device with most: JAX has no call that resets it."""
        if self.task.device != "cuda":
            return None
        return max(device.memory_stats()["peak_bytes_in_use"] for device in self.devices)

    def profile(self, run):
        return operators_of(run, self._program())

    def meanings(self, kernels):
        """XLA compiles anew for its text, so only where a kernel has no name."""
        return meanings_of(self._program(), kernels) if any(map(NAMELESS.match, kernels)) else {}

    def _program(self):
        return self.train_step.lower(self.state, *self._place(self.ring[0])).compile().as_text()

    @staticmethod
    def product(size, task):
        device, style = find_devices(task)[0], choose_style(task)
        keys = jax.random.split(jax.device_put(jax.random.PRNGKey(task.seed), device))
        left, right = (jax.random.normal(key, (size, size), style.dtype) for key in keys)
        compiled = jax.jit(lambda left, right: dot(left, right, style))
        wait = jax.block_until_ready
        if task.device == "cpu":  # where products may run beside one another, so each is waited for
            return Product(lambda: wait(compiled(left, right)), wait)
        return Product(lambda: compiled(left, right), wait)

    @staticmethod
    def stream(elements, task):
        negate = jax.jit(lambda numbers: -numbers, donate_argnums=0)  # in place: a new buffer's pages would have to be mapped
        state = [jax.device_put(np.ones(elements, np.float32), find_devices(task)[0], may_alias=False)]

        def multiply():
            state[0] = negate(state[0])
            return state[0]

        return Product(multiply, jax.block_until_ready)

    def _reset(self, parameters):
        """Place the state. It must own its memory, for a step overwrites it: on a CPU `device_put` may share NumPy's."""
        state = {
            "parameters": parameters,
            "velocity": jax.tree.map(np.zeros_like, parameters),
            # of each device, one behind the other
            "statistics": jax.tree.map(lambda one: np.tile(one, len(self.devices)), initial_statistics(self.network)),
            "key": np.asarray(jax.random.PRNGKey(self.task.seed)) if self.dropout else None,
        }
        self.state = self._place(state, STATE, may_alias=False)

    def _place(self, arrays, specs=SPLIT, **options):
        """Put arrays on the device; on several, whole or cut as the partition specs say."""
        if not self.mesh:
            return jax.device_put(arrays, self.devices[0], **options)
        return jax.device_put(arrays, jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs), **options)

    def no_losses(self):
        """What stands for the losses of the step before the first, one a device."""
        return self._place(np.zeros(len(self.devices), np.float32))

    def _canonical(self, parameters):
        """Copy to canonical NumPy arrays by full name: a view of a donated buffer would change under its reader."""
        canonical = {}
        for layer, arrays in parameters.items():
            for parameter, array in arrays.items():
                order = np.argsort(self._stored_axes(layer, parameter, array.ndim))
                canonical[f"{layer}.{parameter}"] = np.array(np.asarray(array).transpose(order), np.float32, order="C")
        return canonical

    def _stored_axes(self, layer, parameter, rank):
        """Axes of a canonical parameter in the order in which it is stored."""
        axes = TURNED.get((self.ops.get(layer), parameter), range(rank))
        return tuple(axes[self.style.layout] if isinstance(axes, dict) else axes)

    def _output_shapes(self):
        """Shapes that the layers really give, canonical and without the batch, by tracing without computing."""
        shape = self.network["input_shape"]
        if len(shape) == 3 and self.style.layout == "NHWC":
            shape = (shape[1], shape[2], shape[0])
        inputs = jax.ShapeDtypeStruct((self.task.batch, *shape), jnp.int32 if self.network["vocabulary"] else jnp.float32)
        layers = self.network["layers"]

        def all_outputs(parameters, statistics, key, x):
            return forward(layers, self.style, parameters, statistics, key, x)[0]

        outputs = jax.eval_shape(all_outputs, self.state["parameters"], initial_statistics(self.network), self.state["key"], inputs)
        order = [0, *(self.style.layout.index(axis) for axis in "CHW")]
        return {
            name: tuple(output.shape[axis] for axis in order)[1:] if output.ndim == 4 else output.shape[1:]
            for name, output in outputs.items()
        }


class Phase:
    """A part of the step to repeat. Each takes the losses of the one before, or steps that share no data would run side by side."""

    def __init__(self, runner, function):
        self.runner = runner
        self.function = function
        self.results = (runner.no_losses(), None)

    def step(self):
        self.results = self.runner.settle(self.function(self.results[0], self.runner.state, *self.runner.next_batch()))

    def synchronize(self):
        jax.block_until_ready(self.results)


class Aggregation:
    """The mean over devices alone, of buffers of the gradients' shapes, in place."""

    def __init__(self, runner):
        self.runner = runner
        self.buffers = jax.tree.map(jnp.zeros_like, runner.state["parameters"])

    def step(self):
        self.buffers = self.runner.settle(self.runner.aggregate(self.buffers))

    def synchronize(self):
        jax.block_until_ready(self.buffers)


def held_by(number, arrays):
    """What the device of this number holds of arrays that lie on several."""
    return jax.tree.map(lambda array: array.addressable_shards[number].data, arrays)


def find_devices(task):
    """Return JAX's devices for `task`, or raise `Unsupported` with JAX's own words."""
    if task.tuning not in ("stock", "tuned"):
        raise Unsupported(f"tuning '{task.tuning}': this runner has stock and tuned")
    if task.precision not in DTYPES:
        raise Unsupported(f"precision '{task.precision}': this runner has {', '.join(DTYPES)}")
    if task.precision == "tf32" and task.device != "cuda":
        raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
    if task.strategy not in ("", "all_reduce"):
        raise Unsupported(f"strategy '{task.strategy}': JAX has all_reduce")
    if task.device == "cpu":
        # A device that waits for the others holds a thread. With none to spare, of 15,000 steps on two devices one waited for ever.
        fix_threads(task.threads if task.devices == 1 else (task.threads + 1) * task.devices)
    try:
        devices = jax.devices(task.device)
    except RuntimeError as error:
        raise Unsupported(f"jax.devices('{task.device}'): {error}") from error
    if len(devices) < task.devices:
        raise Unsupported(f"{task.devices} devices: jax.devices('{task.device}') has {len(devices)}")
    return devices[:task.devices]


pool = []  # the threads that XLA's CPU client was made for


def fix_threads(threads):
    """Let XLA's CPU client, made at the first use of a device, have `threads` threads.

    JAX has no setting for it: the pool has a thread for each core of the process's affinity (jax issue 1539), or as many as the
    variable NPROC says (`DefaultThreadPoolSize` of XLA's PJRT client).
    """
    if not pool:
        os.environ["NPROC"] = str(threads)
        pool.append(threads)
    if pool != [threads]:
        raise Unsupported(f"{threads} threads: XLA fixes its CPU threads once a process, here {pool[0]}; start another")


def choose_style(task):
    """fp32 is IEEE fp32 in every product. With `Precision.DEFAULT` XLA takes TF32 on GPUs that have it (jax.lax.Precision)."""
    precision = lax.Precision.HIGHEST if task.precision == "fp32" else lax.Precision.DEFAULT
    tuned = task.tuning == "tuned"
    return Style("NHWC" if tuned else "NCHW", DTYPES[task.precision], precision, UNROLL if tuned else 1)
