"""The contract between the driver and a framework: what a runner offers, and the one clock.

Python 3.5 syntax, standard library and NumPy only, because old frameworks load this file. What a
runner must offer is written at `Runner`; the commands are in `runners.session`.
"""

import os
import platform
import time

import numpy as np

# Each of the first three adds to the one before it; `uncompiled` takes a compiler away.
TIERS = ("stock", "compiled", "tuned", "uncompiled")


class Unsupported(Exception):
    """The framework cannot do this. A result, not a failure; the message quotes the framework."""


class Different(Exception):
    """The network that the runner built is not the one described; the message names the layer."""


class Task:
    """What to build. `batch` and `threads` are those of one device.

    `device` is "cpu" or "cuda". `devices` train together by `strategy`, in `ranks` processes (1:
    this process drives all devices); this process is number `rank`. Only the reference can turn
    `dropout` off. The driver sends a `scheduled` task's learning rate while the task trains.
    """

    def __init__(self, network, batch, device="cpu", threads=1, **options):
        self.network, self.batch, self.device, self.threads = network, batch, device, threads
        defaults = {"precision": "fp32", "tuning": "stock", "dropout": True, "seed": 0,
                    "devices": 1, "ranks": 1, "rank": 0, "strategy": "", "scheduled": False}
        unknown = sorted(set(options) - set(defaults))
        if unknown:
            raise TypeError("a task has no " + ", ".join(unknown))
        self.__dict__.update(defaults, **options)


def nothing():
    """The `barrier` of a single process, and the `synchronize` of a step that has finished."""


class Runner:
    """What a runner offers.

    Arrays cross this border as float32 NumPy arrays in canonical layouts: N C H W, dense
    [out, in], convolution [out, in, kh, kw], LSTM gates i f g o. Parameters have full names,
    `layer.parameter`. A static method `describe()` returns a dict with `release` and, where known,
    `libraries` and `device_name`. Building a second task in one process makes a second object.
    `settings` lists what the task's tier sets, in the framework's words.
    """

    settings = ()
    # Whether each rank trains on the whole global batch, not on its own rows of it.
    whole_batch = False
    # Whether each rank holds a part of the parameters. All ranks call `parameters` then, which
    # gathers them.
    parted = False
    # Whether `feed` keeps images as they lie in memory; else they are copied to N C H W.
    keeps_channels_last = False

    def __init__(self, task):
        """Build network, loss and optimiser for `task`; raise `Unsupported` or `Different`."""

    def load(self, weights):
        """Take these weights; forget all optimiser state and running statistics (to 0 and 1)."""

    def feed(self, inputs, targets, residence):
        """Take the ring of mini-batches: inputs [N, B, ...], targets int32 [N, B] or [N, B, T].

        With `residence` "device" the batches are placed there now; with "host" each step copies
        its own. The next step uses batch 0. A rank gets its own part of each global batch, or
        all of it (`whole_batch`). A process that drives n devices gets [N, n B, ...]: device d
        takes B rows, beginning at row d B.
        """

    def files(self, described):
        """Return the framework's own loader of image files: `text`, `batches` and `prefetched`.

        `described` has the `paths` of files, `labels`, the `order` of the samples (repeated without
        a gap), and each channel's `mean` and `deviation`. An input is
        (image / 255 - mean) / deviation. `text` names the loader and its settings. `batches`
        iterates without end over mini-batches as `step` takes them from `next_batch`. Up to
        `prefetched` batches may lie ready.
        """
        raise Unsupported("this runner reads no image files")

    def batch(self, number):
        """Return a batch of `self.ring`, which begins again after its last one."""
        return self.ring[number % len(self.ring)]

    def next_batch(self):
        self.position += 1
        return self.batch(self.position - 1)

    def step(self):
        """Train on the next batch: forward, backward, update. May return before it is done."""

    def synchronize(self):
        """Return when the updated parameters of all steps are ready, not only the loss."""

    def barrier(self):
        """Return when all ranks have come here."""

    def loss(self):
        """Return the mean loss of the last step's batch before its update, of this process."""

    def prepare_reading(self):
        """Start a thread that compiles what the first call of `parameters` would compile.

        The first training step runs at the same time. Most frameworks compile nothing to read them.
        """

    def parameters(self):
        """Return the present parameters by full name. Used in checks and records only."""

    def parameters_of(self, names):
        """Return some of `parameters`; overridden where reading all of them takes longer."""
        return {name: value for name, value in self.parameters().items() if name in names}

    def statistics(self):
        """Return batch norm's running statistics as `batch_norm1.mean` and `batch_norm1.variance`.

        They start at 0 and 1, and each step keeps the share `running` of them. The batch's variance
        may be divided by n or by n - 1. With several devices the first one answers. The dictionary
        is empty if the network has no batch norm. Raises `Unsupported` if the framework's
        statistics cannot be read; the proof then says so.
        """
        return {}

    def schedule(self, rate, decay):
        """Train from now on with this learning rate, where the task is `scheduled`.

        `decay` is the weight decay: decay * parameter is added to the gradient, before momentum.
        Both are inputs of the compiled step. Before the first call they are the network's rate and
        0; `load` changes neither.
        """
        raise Unsupported("this runner takes no learning rate or weight decay while it trains")

    def infer(self, inputs):
        """Return the outputs (B, K) of images (B, C, H, W) in inference mode, as float32.

        Batch norm reads its running statistics. Neither they nor the parameters change.
        """
        raise Unsupported("this runner tests no network in inference mode while it trains")

    def copies(self):
        """Return the `parameters` of each device of this process."""
        return [self.parameters()]

    def held(self):
        """Return how many numbers of each parameter each device of this process holds.

        A list of counts by full name, a device each; a rank answers one dictionary. None where
        every device holds the whole network.
        """
        return None

    def variant(self, name):
        """Return an object with `step()` and `synchronize()` that runs a part of the step.

        `F` is forward and loss; `FB` adds backward and keeps the gradients of the local batch;
        `FBA` adds their aggregation (on one device it is FB again); `A` is the aggregation alone,
        of buffers of the gradients' shapes. A part does not synchronise inside, because that would
        end the overlap that the differences show.
        """
        raise Unsupported("this runner has no part '{}' of a step".format(name))

    def peak_memory(self):
        """Return the peak bytes of GPU memory since the last `feed`, None where unknown."""
        return None

    def profile(self, run):
        """Call `run()` under the framework's profiler and return what the CPU's threads ran.

        An entry is (operator, thread, start, end) in seconds; calls of one thread may nest.
        """
        raise Unsupported("this runner offers no operator profile")

    def meanings(self, kernels):
        """Return, by name, what those kernels of a trace compute whose names do not say it."""
        return {}

    @staticmethod
    def return_memory():
        """Return unused memory that the framework keeps to the device, where it has a call."""

    @staticmethod
    def product(size, task):
        """Return a `Product` of two random `size` x `size` matrices that lie on the device."""
        raise Unsupported("this runner offers no matrix product for the machine's peak")

    @staticmethod
    def stream(elements, task):
        """Return a `Product` that reads and writes `elements` float32 in one operation."""
        raise Unsupported("this runner offers no operation for the machine's memory bandwidth")


class Product:
    """Something to repeat: `compute()` may return early, `wait(result)` waits for its result."""

    barrier = Runner.barrier

    def __init__(self, compute, wait):
        self.compute = compute
        self.wait = wait
        self.result = None

    def step(self):
        self.result = self.compute()

    def synchronize(self):
        self.wait(self.result)


class Part:
    """Something to repeat that keeps no result."""

    def __init__(self, step, synchronize, barrier=nothing):
        self.step = step
        self.synchronize = synchronize
        self.barrier = barrier


# The one clock. No runner reads it in a timed step.
clock = time.monotonic


def timed_run(runner, steps, clock=time.monotonic):
    """Time `steps` steps between two synchronisations, by a clock that all processes share."""
    runner.synchronize()
    runner.barrier()
    start = clock()
    for _ in range(steps):
        runner.step()
    runner.synchronize()
    stop = clock()
    return start, stop


def assert_network(network, output_shapes, parameter_shapes):
    """Raise `Different` unless the shapes that a framework built are those of the network.

    Shapes are canonical and without the batch. `output_shapes` may leave out layers that the
    framework fuses away; `parameter_shapes` has every trained parameter by its full name.
    """
    known = set()
    for layer in network["layers"]:
        wanted = tuple(layer["output_shape"])
        built = tuple(output_shapes.get(layer["name"], wanted))
        if built != wanted:
            raise Different("layer {}: output {}, the network has {}".format(
                layer["name"], built, wanted))
        for name, shape in layer["parameters"].items():
            full = layer["name"] + "." + name
            known.add(full)
            if full not in parameter_shapes:
                raise Different("layer {}: no trained parameter {}".format(layer["name"], name))
            if tuple(parameter_shapes[full]) != tuple(shape):
                raise Different("layer {}: {} {}, the network has {}".format(
                    layer["name"], name, tuple(parameter_shapes[full]), tuple(shape)))
    extra = sorted(set(parameter_shapes) - known)
    if extra:
        raise Different("trained parameters that the network has not: " + ", ".join(extra))


def settings_of(task, tiers):
    """Return the settings of the task's tier, a list of words.

    `tiers` maps each tier to its list, or to the reason why the framework lacks it. Raises
    `Unsupported` with that reason, and for a tier that sets just what an earlier one sets.
    """
    settings = tiers.get(task.tuning, "this runner has " + ", ".join(TIERS))
    if not isinstance(settings, list):
        raise Unsupported("tuning '{}': {}".format(task.tuning, settings))
    for earlier in TIERS[:TIERS.index(task.tuning)]:
        if tiers[earlier] == settings:
            raise Unsupported("same as {}: {}".format(
                earlier, ", ".join(settings) or "there is nothing more to set"))
    return settings


def refuse_unknown(task, precisions=("fp32", "tf32", "bf16", "fp16"), strategies=None):
    """Raise `Unsupported` for a tuning, precision or strategy that a runner does not have."""
    known = [("tuning", TIERS), ("precision", precisions)]
    if strategies is not None and task.devices > 1:
        known.append(("strategy", strategies))
    for key, names in known:
        if getattr(task, key) not in names:
            raise Unsupported("{} '{}': this runner has {}".format(
                key, getattr(task, key), ", ".join(names)))
    if task.precision == "tf32" and task.device != "cuda":
        raise Unsupported("TF32 is a format of NVIDIA's tensor cores; the CPU has none")
    if task.strategy == "nccl" and task.device == "cpu":
        raise Unsupported("strategy 'nccl': NCCL moves data between GPUs")


def refuse_all_but_fp32_on_a_cpu(task, framework, elsewhere):
    """Raise `Unsupported` for another precision, or for another device: `elsewhere` says why."""
    refuse_unknown(task)
    if task.device != "cpu":
        raise Unsupported(elsewhere)
    if task.precision != "fp32":
        raise Unsupported("precision '{}': {} trains in the type of its weights and has no mixed "
                          "precision".format(task.precision, framework))


def lowered(operations, layer):
    """Return the entry of a runner's table of operations that builds `layer`."""
    if layer["op"] not in operations:
        raise Unsupported("layer {}: this runner has no operation '{}'".format(
            layer["name"], layer["op"]))
    return operations[layer["op"]]


def native_paths(network, renamed):
    """Map our full names to layers and the framework's names: "norm1.scale": ("norm1", "weight").

    `renamed` has the framework's parameter names by operation, where they differ from ours.
    """
    return {layer["name"] + "." + name:
            (layer["name"], renamed.get(layer["op"], {}).get(name, name))
            for layer in network["layers"] for name in layer["parameters"]}


def native_names(network, renamed):
    """Map our full names to those of modules: {"norm1.scale": "parts.norm1.weight"}."""
    return {name: "parts." + ".".join(path)
            for name, path in native_paths(network, renamed).items()}


def train_on_zeros(runner, task, framework, refusals, words):
    """Train one step, because a framework may refuse a precision or tuning only when it runs.

    `refusals` are the exceptions that say so; `words` makes a reason of one.
    """
    network, weights = task.network, runner.parameters()
    rows = [1, task.batch * task.devices // task.ranks]
    runner.feed(np.zeros(rows + list(network["input_shape"]), np.float32),
                np.zeros(rows + list(network["target_shape"]), np.int32), "device")
    try:
        runner.step()
        runner.synchronize()
    except refusals as error:
        raise Unsupported("{} cannot train {} in {} {} on {}: {}".format(
            framework, network["name"], task.precision, task.tuning, task.device,
            words(error))) from error
    runner.load(weights)


started_with = []


def fix_threads(threads, variables, library):
    """Set the number of threads that a library reads once a process, from these variables."""
    if not started_with:
        started_with.append(threads)
        for variable in variables:
            os.environ[variable] = str(threads)
    if started_with != [threads]:
        raise Unsupported("{} threads: {} has started with {} in this process; start another"
                          .format(threads, library, started_with[0]))


def processor_name():
    return platform.processor() or platform.machine()
