"""JAX alone: pure functions over pytrees, and one jitted step whose state (parameters, velocities, ...) is donated.

`stock` computes images N C H W. `tuned` computes them N H W C, unrolls scans and, on a GPU, lets XLA write products in Triton, as
JAX's GPU performance tips say (by `compiler_options`: XLA_FLAGS would act on both tunings). Dense and LSTM weights are stored
[in, out], as JAX's libraries do, and turned at the border. XLA fixes its CPU threads once a process: see `fix_threads`.
"""

import importlib.metadata
import os
import platform
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from runners.protocol import Product, Unsupported, assert_network
from runners.protocol import Runner as BaseRunner

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
LOSS_SCALE = 1024.0  # fixed, so that an fp16 trajectory can be compared
RUNNING = 0.9  # share of the old value in a running average of batch norm
UNROLL = 8  # words of an LSTM in one iteration of the compiled loop, when tuned
WEIGHT_LAYOUT = {"NCHW": "OIHW", "NHWC": "HWIO"}
TURNED = {  # axes of the canonical array in the order in which this runner stores them
    ("dense", "weight"): (1, 0), ("lstm", "weight_input"): (1, 0), ("lstm", "weight_hidden"): (1, 0),
    ("conv2d", "weight"): {"NCHW": (0, 1, 2, 3), "NHWC": (2, 3, 1, 0)},
}


class Style(NamedTuple):
    """How the layers compute: what tuning and precision decide."""

    layout: str  # of images
    dtype: Any  # of operands and activations; parameters, statistics and loss are float32
    precision: lax.Precision  # of float32 products
    unroll: int


def forward(layers, style, parameters, statistics, key, x):
    """Return every layer's output by name, and the new running averages; `key` is None where dropout is off."""
    outputs = {"input": x if jnp.issubdtype(x.dtype, jnp.integer) else x.astype(style.dtype)}
    new_statistics = {}
    for number, layer in enumerate(layers):
        name, inputs = layer["name"], [outputs[source] for source in layer["inputs"]]
        if layer["op"] == "batch_norm":
            outputs[name], new_statistics[name] = batch_norm(inputs[0], layer, parameters[name], statistics[name], style)
        elif layer["op"] == "dropout":
            outputs[name] = inputs[0] if key is None else dropout(inputs[0], layer, jax.random.fold_in(key, number))
        else:
            outputs[name] = apply(layer, parameters.get(name), inputs, style)
    return outputs, new_statistics


def apply(layer, p, inputs, style):
    op, a, x = layer["op"], layer["attributes"], inputs[0]
    channels, rows, columns = (style.layout.index(axis) for axis in "CHW")
    if op == "dense":
        return dot(x, p["weight"], style) + p["bias"].astype(x.dtype)
    if op == "conv2d":
        return conv(x, a, p, style)
    if op == "max_pool":
        return max_pool(x, a, style)
    if op == "avg_pool":
        return lax.reduce_window(x, 0.0, lax.add, *window(a, style)) / a["kernel"] ** 2
    if op == "global_avg_pool":
        return x.mean((rows, columns))
    if op == "relu":
        return jax.nn.relu(x)
    if op == "sigmoid":
        return jax.nn.sigmoid(x)
    if op == "add":
        return inputs[0] + inputs[1]
    if op == "flatten":  # the network's features are in the order C H W
        return jnp.moveaxis(x, channels, 1).reshape(len(x), -1)
    if op == "subsample":
        return lax.slice_in_dim(lax.slice_in_dim(x, 0, None, a["stride"], rows), 0, None, a["stride"], columns)
    if op == "pad_channels":
        return jnp.pad(x, [(0, a["extra"] if axis == channels else 0) for axis in range(4)])
    if op == "embedding":
        return p["weight"].astype(style.dtype)[x]
    if op == "lstm":
        return lstm(x, p, style)
    raise Unsupported(f"layer {layer['name']}: this runner has no operation '{op}'")


def dot(x, weight, style):
    return jnp.dot(x, weight.astype(x.dtype), precision=style.precision)


def conv(x, a, p, style):
    y = lax.conv_general_dilated(
        x, p["weight"].astype(x.dtype), window_strides=(a["stride"],) * 2, padding=((a["padding"],) * 2,) * 2,
        dimension_numbers=(style.layout, WEIGHT_LAYOUT[style.layout], style.layout), precision=style.precision)
    return y + per_channel(p["bias"], style).astype(y.dtype) if a["bias"] else y


def max_pool(x, a, style):
    return lax.reduce_window(x, -jnp.inf, lax.max, *window(a, style))


def window(a, style):
    """Dimensions, strides and padding of a pooling window, for `lax.reduce_window`, which rounds down."""
    spatial = [axis in "HW" for axis in style.layout]
    return ([a["kernel"] if yes else 1 for yes in spatial], [a["stride"] if yes else 1 for yes in spatial],
            [(a["padding"],) * 2 if yes else (0, 0) for yes in spatial])


def batch_norm(x, layer, p, statistics, style):
    """Normalise by the batch's own statistics, in float32; keep their running averages, as a training loop does."""
    rest = tuple(axis for axis, letter in enumerate(style.layout) if letter != "C")
    x32 = x.astype(jnp.float32)
    mean, variance = x32.mean(rest), x32.var(rest)
    scale = p["scale"] * lax.rsqrt(variance + layer["attributes"]["epsilon"])
    y = (x32 - per_channel(mean, style)) * per_channel(scale, style) + per_channel(p["shift"], style)
    averages = {"mean": RUNNING * statistics["mean"] + (1 - RUNNING) * mean,
                "variance": RUNNING * statistics["variance"] + (1 - RUNNING) * variance}
    return y.astype(x.dtype), averages


def dropout(x, layer, key):
    keep = 1.0 - layer["attributes"]["rate"]
    return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0)


def lstm(x, p, style):
    """(B, T, F) -> (B, T, H). The input's product is one for all words; gates in order i f g o."""
    from_input = dot(x.swapaxes(0, 1), p["weight_input"], style) + p["bias"].astype(x.dtype)  # (T, B, 4H)
    weight = p["weight_hidden"].astype(x.dtype)

    def cell(carry, from_word):
        hidden, memory = carry  # (B, H) each
        i, f, g, o = jnp.split(from_word + dot(hidden, weight, style), 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros((len(x), weight.shape[0]), x.dtype)
    _, outputs = lax.scan(cell, (start, start), from_input, unroll=style.unroll)
    return outputs.swapaxes(0, 1)


def per_channel(vector, style):
    return vector.reshape([-1 if axis == "C" else 1 for axis in style.layout])


def cross_entropy(logits, targets):
    """Mean over all labels: logits (B, K) or (B, T, K), targets (B) or (B, T)."""
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(log_probabilities, targets[..., None], -1).mean()


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
        self.device = find_device(task)
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
        layers, style = self.network["layers"], self.style
        learning_rate, momentum = self.network["learning_rate"], self.network["momentum"]
        scale = LOSS_SCALE if self.task.precision == "fp16" else 1.0

        def scaled_loss(parameters, statistics, key, inputs, targets):
            outputs, statistics = forward(layers, style, parameters, statistics, key, inputs)
            loss = cross_entropy(outputs[layers[-1]["name"]], targets)
            return scale * loss, (loss, statistics)

        def loss_and_gradients(state, key, inputs, targets):
            gradients, (loss, statistics) = jax.grad(scaled_loss, has_aux=True)(
                state["parameters"], state["statistics"], key, inputs, targets)
            return loss, statistics, jax.tree.map(lambda gradient: gradient / scale, gradients) if scale != 1 else gradients

        def train_step(state, inputs, targets):
            key, now = jax.random.split(state["key"]) if self.dropout else (None, None)
            loss, statistics, gradients = loss_and_gradients(state, now, inputs, targets)
            parameters, velocity = sgd(state["parameters"], state["velocity"], gradients, learning_rate, momentum)
            return {"parameters": parameters, "velocity": velocity, "statistics": statistics, "key": key}, loss

        def only_gradients(state, inputs, targets):
            return loss_and_gradients(state, state["key"], inputs, targets)[2]

        triton = {"xla_gpu_triton_gemm_any": True}
        options = triton if self.task.device == "cuda" and self.task.tuning == "tuned" else None
        self.train_step = jax.jit(train_step, donate_argnums=0, compiler_options=options)
        self.only_gradients = jax.jit(only_gradients, compiler_options=options)

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
            self.ring = [jax.device_put(batch, self.device) for batch in self.ring]
            jax.block_until_ready(self.ring)
        self.next = 0

    def step(self):
        inputs, targets = jax.device_put(self.ring[self.next], self.device)  # nothing to do where the ring is on the device
        self.next = (self.next + 1) % len(self.ring)
        self.state, self.last_loss = self.train_step(self.state, inputs, targets)

    def synchronize(self):
        jax.block_until_ready(self.state)

    def loss(self):
        return float(self.last_loss)

    def gradients(self):
        return self._canonical(self.only_gradients(self.state, *jax.device_put(self.ring[0], self.device)))

    def parameters(self):
        return self._canonical(self.state["parameters"])

    def peak_memory(self):
        """Peak of XLA's allocator since the process began: JAX has no call that resets it."""
        return self.device.memory_stats()["peak_bytes_in_use"] if self.task.device == "cuda" else None

    @staticmethod
    def product(size, task):
        device, style = find_device(task), choose_style(task)
        keys = jax.random.split(jax.device_put(jax.random.PRNGKey(task.seed), device))
        left, right = (jax.random.normal(key, (size, size), style.dtype) for key in keys)
        compiled = jax.jit(lambda left, right: dot(left, right, style))
        wait = jax.block_until_ready
        if task.device == "cpu":  # where products may run beside one another, so each is waited for
            return Product(lambda: wait(compiled(left, right)), wait)
        return Product(lambda: compiled(left, right), wait)

    def _reset(self, parameters):
        """Place the state. It must own its memory, for a step overwrites it: on a CPU `device_put` may share NumPy's."""
        state = {
            "parameters": parameters,
            "velocity": jax.tree.map(np.zeros_like, parameters),
            "statistics": {
                layer["name"]: {"mean": np.zeros(layer["output_shape"][0], np.float32),
                                "variance": np.ones(layer["output_shape"][0], np.float32)}
                for layer in self.network["layers"] if layer["op"] == "batch_norm"
            },
            "key": np.asarray(jax.random.PRNGKey(self.task.seed)) if self.dropout else None,
        }
        self.state = jax.device_put(state, self.device, may_alias=False)

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

        def all_outputs(state, x):
            return forward(layers, self.style, state["parameters"], state["statistics"], state["key"], x)[0]

        outputs = jax.eval_shape(all_outputs, self.state, inputs)
        order = [0, *(self.style.layout.index(axis) for axis in "CHW")]
        return {
            name: tuple(output.shape[axis] for axis in order)[1:] if output.ndim == 4 else output.shape[1:]
            for name, output in outputs.items()
        }


def find_device(task):
    """Return JAX's device for `task`, or raise `Unsupported` with JAX's own words."""
    if task.tuning not in ("stock", "tuned"):
        raise Unsupported(f"tuning '{task.tuning}': this runner has stock and tuned")
    if task.precision not in DTYPES:
        raise Unsupported(f"precision '{task.precision}': this runner has {', '.join(DTYPES)}")
    if task.precision == "tf32" and task.device != "cuda":
        raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
    if task.device == "cpu":
        fix_threads(task.threads)
    try:
        return jax.devices(task.device)[0]
    except RuntimeError as error:
        raise Unsupported(f"jax.devices('{task.device}'): {error}") from error


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


def initial_parameters(network, style):
    """Parameters of each layer as its operation needs them, all zero: the driver's weights come with `load`."""
    shapes = {"input": network["input_shape"]}
    parameters = {}
    for layer in network["layers"]:
        op, a, source = layer["op"], layer["attributes"], shapes[layer["inputs"][0]]
        shapes[layer["name"]] = layer["output_shape"]
        if op == "dense":
            needed = {"weight": (source[-1], a["units"]), "bias": (a["units"],)}
        elif op == "conv2d":
            sizes = {"O": a["filters"], "I": source[0], "H": a["kernel"], "W": a["kernel"]}
            needed = {"weight": [sizes[axis] for axis in WEIGHT_LAYOUT[style.layout]]}
            if a["bias"]:
                needed["bias"] = (a["filters"],)
        elif op == "batch_norm":
            needed = {"scale": (source[0],), "shift": (source[0],)}
        elif op == "embedding":
            needed = {"weight": (a["vocabulary"], a["units"])}
        elif op == "lstm":
            gates = 4 * a["units"]
            needed = {"weight_input": (source[-1], gates), "weight_hidden": (a["units"], gates), "bias": (gates,)}
        else:
            continue
        parameters[layer["name"]] = {name: np.zeros(shape, np.float32) for name, shape in needed.items()}
    return parameters

