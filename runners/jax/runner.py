"""JAX alone: pure functions over pytrees, and one jitted step whose state is donated.

Images are N H W C, as in JAX's libraries. `stock` is compiled. `tuned` unrolls scans and, on a GPU,
lets XLA write products in Triton and record convolutions in CUDA graphs (by `compiler_options`:
XLA_FLAGS would act on both tiers). Weights are turned at the border to how `layers` stores them. On
several devices the same step runs in `jax.shard_map` on each one's part of the batch, and
`lax.pmean` aggregates the gradients; or the network is divided among them (`sharding`).
"""

import importlib.metadata
import os
from functools import partial
from threading import Thread

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from runners import protocol
from runners.arrays import all_transposed, copied
from runners.jax.device import PLATFORMS, find_devices, to_host
from runners.jax.fusions import meanings_of
from runners.jax.layers import dot, forward, initial_parameters, initial_statistics
from runners.jax.profile import operators_of
from runners.jax.sharding import SPLIT, STRATEGIES, WHOLE, Division
from runners.jax.step import Aggregation, Phase, write_step
from runners.jax.tiers import (
    CUDNN_ATTENTION,
    UNROLL,
    UNROLLED,
    choose_style,
    compiler_options,
    refuse_attention_in_fp16,
    tiers,
)
from runners.protocol import Product, Unsupported

# Axes of the canonical array in the order in which this runner stores them.
TURNED = {
    ("dense", "weight"): (1, 0), ("lstm", "weight_input"): (1, 0),
    ("lstm", "weight_hidden"): (1, 0), ("linear", "weight"): (1, 0),
    ("conv2d", "weight"): (2, 3, 1, 0),
}
# On several devices each part of the state is the same, or is cut along the first axis.
STATE = {"parameters": WHOLE, "velocity": WHOLE, "statistics": SPLIT, "key": WHOLE,
         "recipe": WHOLE}


class Runner(protocol.Runner):
    keeps_channels_last = True

    @staticmethod
    def describe():
        installed = {str(each.metadata["Name"]): each.version
                     for each in importlib.metadata.distributions()}
        libraries = {name: installed[name] for name in sorted(installed)
                     if name.startswith(("jax", "nvidia-cudnn"))}
        # Asking JAX for its devices fixes the CPU's threads, so only a GPU's plugin is asked.
        plugin = any("cuda" in name or "rocm" in name for name in libraries)
        gpu = plugin and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
        device_name = jax.devices()[0].device_kind if gpu else protocol.processor_name()
        return {"release": jax.__version__, "device_name": device_name, "libraries": libraries}

    def __init__(self, task):
        self.task = task
        self.devices = find_devices(task)
        refuse_attention_in_fp16(task)
        self.settings = protocol.settings_of(task, tiers(task))
        # The devices of all nodes; `self.devices` are those of this process.
        every = jax.devices(PLATFORMS[task.device])[:task.devices]
        self.mesh = Mesh(np.array(every), ("devices",)) if task.devices > 1 else None
        self.network = task.network
        self.style = choose_style(task, UNROLL if UNROLLED in self.settings else 1,
                                  "cudnn" if CUDNN_ATTENTION in self.settings else None)
        self.ops = {layer["name"]: layer["op"] for layer in self.network["layers"]}
        self.dropout = "dropout" in self.ops.values()
        # The rate and decay that a scheduled step reads from its state.
        self.recipe = None
        if task.scheduled:
            self.recipe = {"rate": np.float32(self.network["learning_rate"]),
                           "decay": np.float32(0)}
        parameters = initial_parameters(self.network)
        self.division, self.takes, self.batch_spec = None, STATE, SPLIT
        if task.devices > 1 and task.strategy in STRATEGIES:
            self.division = Division(task, self.mesh, parameters)
            self.style = self.style._replace(heads_in=self.division.heads_in)
            self.settings = [*self.settings, *self.division.settings()]
            self.takes = dict(STATE, parameters=self.division.specs, velocity=self.division.specs)
            self.batch_spec = self.division.batch
            parameters = self._stored(parameters)
        self.state = None
        self._reset(parameters)
        canonical = self._canonical(parameters, on_device=False)
        shapes = {name: array.shape for name, array in canonical.items()}
        protocol.assert_network(self.network, self._output_shapes(), shapes)
        write_step(self)

    def compile(self, function, takes, gives, **options):
        """Jit `function`; on several devices each runs it on its own part, as the specs say."""
        if self.division:
            options.update(in_shardings=self._shardings(takes),
                           out_shardings=self._shardings(gives))
        elif self.mesh:
            # check_vma would sum the gradients of replicated parameters; FB wants each device's.
            function = jax.shard_map(function, mesh=self.mesh, in_specs=takes, out_specs=gives,
                                     check_vma=False)
        return jax.jit(function, compiler_options=compiler_options(self.settings), **options)

    def load(self, weights):
        parameters = {}
        turned = all_transposed({name: (array, self._stored_axes(name, array.ndim))
                                 for name, array in weights.items()})
        for name, array in turned.items():
            layer, _, parameter = name.partition(".")
            parameters.setdefault(layer, {})[parameter] = array
        self._reset(self._stored(parameters))

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        self.ring = list(zip(np.ascontiguousarray(inputs), targets, strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [self._place(batch) for batch in self.ring]
            jax.block_until_ready(self.ring)
        self.position = 0

    def files(self, described):
        from runners.jax import files

        text, batches, prefetched = files.load(described, self.task.batch)
        return text, map(self._place, batches), prefetched

    def step(self):
        self.state, self.last_loss = self.settle(self.train_step(self.state, *self.next_batch()))

    def settle(self, results):
        """Wait for each step on several logical CPUs: collectives of two steps can deadlock."""
        if self.mesh and self.task.device == "cpu":
            jax.block_until_ready(results)
        return results

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else self._place(batch)

    def synchronize(self):
        jax.block_until_ready(self.state)

    def barrier(self):
        if self.task.ranks > 1:
            multihost_utils.sync_global_devices("window")

    def loss(self):
        if self.task.ranks == 1:
            # np.mean of JAX's own array would compile.
            return float(np.asarray(self.last_loss).mean())
        return float(np.mean([shard.data for shard in self.last_loss.addressable_shards]))

    def prepare_reading(self):
        if self._turns_on_device():
            arrays, axes = out_of_order(self._with_order(self.state["parameters"]))
            # The next step overwrites the arrays: a program needs only what describes them.
            described = {name: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=each.sharding)
                         for name, each in arrays.items()}
            Thread(target=lambda: transposed_by.lower(described, axes).compile()).start()

    def parameters(self):
        return self._canonical(self.state["parameters"])

    def parameters_of(self, names):
        held = self.state["parameters"]
        return self._canonical({layer: {key: array for key, array in arrays.items()
                                        if f"{layer}.{key}" in names}
                                for layer, arrays in held.items()})

    def statistics(self):
        held = held_by(0, self.state["statistics"]) if self.mesh else self.state["statistics"]
        return self._canonical(held)

    def held(self):
        return self.division.held(self.state["parameters"]) if self.division else None

    def copies(self):
        held, numbers = self.state["parameters"], range(len(self.devices))
        if self.division:
            return [self._canonical(self.division.own(number, held)) for number in numbers]
        if not self.mesh or not self._turns_on_device():
            return [self._canonical(held_by(number, held)) for number in numbers]
        # Each device turns its own: one program, which `parameters` has compiled.
        turned = transposed(self._with_order(held))
        # Copied, so that all devices need the pinned memory of one.
        return [copied(to_host(held_by(number, turned))) for number in numbers]

    def schedule(self, rate, decay):
        self.recipe = {"rate": np.float32(rate), "decay": np.float32(decay)}
        self.state["recipe"] = self._place(self.recipe, WHOLE)

    def infer(self, inputs):
        if inputs.ndim == 4:
            inputs = inputs.transpose(0, 2, 3, 1)  # (B, C, H, W) -> (B, H, W, C)
        return self.inference(self.state["parameters"], self.state["statistics"],
                              np.ascontiguousarray(inputs))

    def variant(self, name):
        if self.division:
            raise Unsupported(f"strategy '{self.task.strategy}' sends in the midst of forward and "
                              "backward: no part of its step is an aggregation")
        return Aggregation(self) if name == "A" else Phase(self, self.phases[name])

    def peak_memory(self):
        """Peak of XLA's allocator since the process began: JAX has no call that resets it."""
        return max(device.memory_stats()["peak_bytes_in_use"] for device in self.devices)

    def profile(self, run):
        return operators_of(run, self._program())

    def meanings(self, kernels):
        return meanings_of(self._program, kernels)

    def _program(self):
        return self.train_step.lower(self.state, *self.batch(0)).compile().as_text()

    @staticmethod
    def product(size, task):
        device, style = find_devices(task)[0], choose_style(task)
        keys = jax.random.split(jax.device_put(jax.random.PRNGKey(task.seed), device))
        left, right = (jax.random.normal(key, (size, size), style.dtype) for key in keys)
        compiled = jax.jit(lambda left, right: dot(left, right, style))
        wait = jax.block_until_ready
        # On a CPU products may run beside one another, so each is waited for.
        if task.device == "cpu":
            return Product(lambda: wait(compiled(left, right)), wait)
        return Product(lambda: compiled(left, right), wait)

    @staticmethod
    def stream(elements, task):
        # In place: a new buffer's pages would have to be mapped.
        negate = jax.jit(lambda numbers: -numbers, donate_argnums=0)
        ones = np.ones(elements, np.float32)
        state = [jax.device_put(ones, find_devices(task)[0], may_alias=False)]

        def multiply():
            state[0] = negate(state[0])
            return state[0]

        return Product(multiply, jax.block_until_ready)

    def _reset(self, parameters):
        """Place a new state in its own memory: a step overwrites it, and a CPU may share NumPy's.

        The old state goes first: both together would be the peak of memory that JAX reports.
        """
        state, self.state = self._new_state(parameters), None
        self.state = self._place(state, self.takes, may_alias=False)

    def _new_state(self, parameters):
        """Return the state of a step before the first one, in the host's memory."""
        # All share this memory: new pages would take as long as the copy to the device.
        zeros = np.zeros(max(each.size for each in jax.tree.leaves(parameters)), np.float32)
        return {
            "parameters": parameters,
            "velocity": jax.tree.map(lambda each: zeros[:each.size].reshape(each.shape),
                                     parameters),
            # Those of each device, one after the other.
            "statistics": jax.tree.map(lambda one: np.tile(one, len(self.devices)),
                                       initial_statistics(self.network)),
            "key": self._next_key() if self.dropout else None,
            "recipe": self.recipe,
        }

    def _next_key(self):
        """Return the key of the next dropout masks. Loading weights does not change it."""
        return np.asarray(self.state["key"] if self.state else
                          jax.random.PRNGKey(self.task.seed))

    def _stored(self, parameters):
        """Lay parameters out as a divided network holds them."""
        if not self.division:
            return parameters
        return {layer: {kind: self.division.stored(layer, array) for kind, array in held.items()}
                for layer, held in parameters.items()}

    def _shardings(self, specs):
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)

    def _place(self, arrays, specs=None, **options):
        """Put arrays on the device; on several, whole or cut as the partition specs say."""
        if not self.mesh:
            return jax.device_put(arrays, self.devices[0], **options)
        shardings = self._shardings(self.batch_spec if specs is None else specs)
        if self.task.ranks > 1:
            def place(sharding, array):
                return jax.make_array_from_process_local_data(sharding, np.array(array))

            return jax.tree.map(lambda sharding, held: jax.tree.map(partial(place, sharding), held),
                                shardings, arrays, is_leaf=lambda node: node is None)
        return jax.device_put(arrays, shardings, **options)

    def no_losses(self):
        """Zeros in place of the losses of the step before the first, one a device."""
        return self._place(np.zeros(len(self.devices), np.float32))

    def _canonical(self, parameters, on_device=None):
        """Copy to canonical NumPy arrays by full name: a view of a donated buffer would change."""
        if self._turns_on_device() if on_device is None else on_device:
            turned = transposed(self._with_order(parameters))
            return to_host(held_by(0, turned))
        # All copies from the device begin at once, and do not wait for each other.
        return all_transposed(self._with_order(jax.device_get(parameters)))

    def _with_order(self, parameters):
        """Give each parameter by full name, with the canonical order of its axes."""
        ordered = {}
        for layer, arrays in parameters.items():
            for parameter, array in arrays.items():
                name = f"{layer}.{parameter}"
                order = np.argsort(self._stored_axes(name, array.ndim))
                if self.division:
                    array = self.division.as_in_network(layer, array)
                ordered[name] = array, order
        return ordered

    def _turns_on_device(self):
        """Return whether the device transposes the parameters that are read.

        The host transposes those that are loaded. Otherwise another copy on the GPU would set the
        peak of memory that a small network's row reports.
        """
        return self.task.device == "cuda" and self.task.ranks == 1 and not self.division

    def _stored_axes(self, name, rank):
        """Axes of a canonical parameter in the order in which it is stored."""
        layer, _, parameter = name.partition(".")
        return tuple(TURNED.get((self.ops.get(layer), parameter), range(rank)))

    def _output_shapes(self):
        """Shapes that the layers really give, canonical and without the batch, by tracing."""
        shape = self.network["input_shape"]
        if len(shape) == 3:
            shape = (shape[1], shape[2], shape[0])
        kind = jnp.int32 if self.network["vocabulary"] else jnp.float32
        inputs = jax.ShapeDtypeStruct((self.task.batch, *shape), kind)
        layers = self.network["layers"]

        def all_outputs(parameters, statistics, key, x):
            return forward(layers, self.style, parameters, statistics, key, x)[0]

        parameters = initial_parameters(self.network) if self.division else \
            self.state["parameters"]
        outputs = jax.eval_shape(all_outputs, parameters,
                                 initial_statistics(self.network), self.state["key"], inputs)
        return {name: tuple(output.shape[axis] for axis in (3, 1, 2)) if output.ndim == 4
                else output.shape[1:] for name, output in outputs.items()}


def transposed(arrays):
    """Transpose arrays by name, each given with its axes, on their device."""
    found = {name: array for name, (array, _) in arrays.items()}
    moved, axes = out_of_order(arrays)
    return {**found, **transposed_by(moved, axes)} if axes else found


def out_of_order(arrays):
    """Return the arrays by name that must be transposed, and the axes of each by name.

    Those that lie in order already are left out: each further array takes time to compile.
    """
    axes = tuple((name, tuple(map(int, order))) for name, (_, order) in arrays.items()
                 if (np.diff(order) < 0).any())
    return {name: arrays[name][0] for name, _ in axes}, axes


@partial(jax.jit, static_argnums=1)
def transposed_by(arrays, axes):
    return {name: jnp.transpose(arrays[name], order) for name, order in axes}


def held_by(number, arrays):
    """Return what device `number` holds of arrays that lie on several devices."""
    return jax.tree.map(lambda array: array.addressable_shards[number].data, arrays)
