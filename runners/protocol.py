"""The worker's side of the wire, the same for every framework: commands in on stdin, answers out on a private descriptor.

It owns the clock (`timed_run`), the arrays (`.npz` files that a command names) and the typing of answers. It has no statistics
and decides nothing: the driver says how many steps. Python 3.6 syntax, standard library and NumPy only, because old frameworks
load it. What a runner must offer is written at `Runner`.
"""

import gc
import hashlib
import importlib
import json
import os
import resource
import socket
import sys
import threading
import time
import traceback

import numpy as np

HEARTBEAT_SECONDS = 2.0
OUT_OF_MEMORY = ("out of memory", "outofmemory", "resource_exhausted", "resource exhausted", "bad_alloc", "cannot allocate memory",
                 "unable to allocate", "can't allocate memory", "failed to allocate")


class Unsupported(Exception):
    """The framework cannot do this; the message quotes its own error or documentation. A result, not a failure."""


class Different(Exception):
    """The network that the runner built is not the one described; the message names the layer."""


class Task:
    """What to build: attributes `network` (dict), `batch`, `device` ("cpu" or "cuda"), `threads`, `precision`, `tuning`,
    `dropout` (off in checks: its random stream is the framework's own) and `seed`.

    Of several: `devices`, how many train together by `strategy`; `ranks`, the processes that share them (1: this one drives all),
    and this one's `rank`. `batch` and `threads` are of one device.
    """

    def __init__(self, network, batch, device="cpu", threads=1, precision="fp32", tuning="stock", dropout=True, seed=0,
                 devices=1, ranks=1, rank=0, strategy=""):
        self.network = network
        self.batch = batch
        self.device = device
        self.threads = threads
        self.precision = precision
        self.tuning = tuning
        self.dropout = dropout
        self.seed = seed
        self.devices = devices
        self.ranks = ranks
        self.rank = rank
        self.strategy = strategy


class Runner:
    """What a runner offers. Arrays cross this border in canonical layouts (N C H W, dense [out, in], convolution
    [out, in, kh, kw], LSTM gates i f g o) under full names `layer.parameter`, as float32 NumPy arrays.

    `describe()` is a static method: a dict with at least `release`, and `libraries` and `device_name` where it knows them.
    Building a second task in one process makes a second object. `parameters` and `peak_memory` stand in checks and records only.
    """

    def __init__(self, task):
        """Build the network, its loss and its optimiser for `task`; raise `Unsupported` or `Different`."""

    def load(self, weights):
        """Take these weights and forget all optimiser state."""

    def feed(self, inputs, targets, residence):
        """Take the ring of mini-batches: inputs [N, B, ...], targets int32 [N, B] or [N, B, T]. With `residence` "device" they
        are placed there now; with "host" each step copies its own. The next step uses batch 0.

        A rank gets its own part of each global batch. A process that drives n devices gets [N, n B, ...]: device d takes the
        rows from d B on."""

    def step(self):
        """Train on the next batch of the ring: forward, backward, update. May return before the device has finished."""

    def synchronize(self):
        """Return when the updated parameters of all steps so far are ready, not only the loss."""

    def barrier(self):
        """Return when all ranks have come here."""

    def loss(self):
        """Mean loss of the last step's batch as a float, before its update; of this process's samples."""

    def gradients(self):
        """Gradients of the loss of batch 0 at the present parameters, by full name, without an update; of the mean loss over the
        global batch, so that every rank answers the same."""

    def parameters(self):
        """The present parameters by full name."""

    def copies(self):
        """The parameters that each device of this process holds, as `parameters` gives them."""
        return [self.parameters()]

    def variant(self, name):
        """Return an object with `step()` and `synchronize()` that runs a part of the step, or raise `Unsupported`.

        `F` is forward and loss; `FB` backward too, its gradients of the local batch kept alive; `FBA` their aggregation too (of
        one device the same as FB); `FBAU` the whole step; `A` the aggregation alone, of buffers of the gradients' shapes. None
        synchronises inside, for that would end the overlap that the differences are to show.
        """
        raise Unsupported("this runner has no part '{}' of a step".format(name))

    def peak_memory(self):
        """Peak bytes of device memory since the last `feed`, or None where the framework cannot say."""
        return None

    def profile(self, run):
        """Call `run()` under the framework's own profiler and return what the CPU's threads ran meanwhile, as (operator, thread,
        start, end) in seconds of one clock; calls of one thread may nest. Raise `Unsupported` with the reason."""
        raise Unsupported("this runner offers no operator profile")

    def meanings(self, kernels):
        """Say after a trace what those of `kernels` (names) compute whose names do not tell, as a word by name."""
        return {}

    @staticmethod
    def return_memory():
        """Return to the device what the framework keeps of memory that nothing uses; nothing where it has no call for that."""

    @staticmethod
    def product(size, task):
        """Return a `Product` of two `size` x `size` matrices of random numbers that lie on the task's device already, with its
        threads and precision (there is no network); raise `Unsupported`."""
        raise Unsupported("this runner offers no matrix product for the machine's peak")

    @staticmethod
    def stream(elements, task):
        """Return a `Product` that reads `elements` float32 numbers from the task's device and writes as many, in one operation;
        raise `Unsupported`."""
        raise Unsupported("this runner offers no operation for the machine's memory bandwidth")


class Product:
    """A product to repeat, as `timed_run` wants it: `multiply()` may return early, `wait(result)` returns when it is ready."""

    barrier = Runner.barrier

    def __init__(self, multiply, wait):
        self.multiply = multiply
        self.wait = wait
        self.result = None

    def step(self):
        self.result = self.multiply()

    def synchronize(self):
        self.wait(self.result)


class Part:
    """A variant of the step, as `timed_run` wants it: the ranks begin together."""

    def __init__(self, variant, barrier):
        self.step = variant.step
        self.synchronize = variant.synchronize
        self.barrier = barrier


def timed_run(runner, steps, clock=time.monotonic):
    """Time `steps` training steps between two synchronisations: (start, stop) of a clock that all processes of a boot share."""
    runner.synchronize()
    runner.barrier()
    start = clock()
    for _ in range(steps):
        runner.step()
    runner.synchronize()
    stop = clock()
    return start, stop


def assert_network(network, output_shapes, parameter_shapes):
    """Raise `Different` unless the shapes that a framework built (without batch; canonical) are the network's own.

    `output_shapes` may leave out layers that the framework fuses away; `parameter_shapes` is complete, by full name.
    """
    for layer in network["layers"]:
        wanted = tuple(layer["output_shape"])
        built = tuple(output_shapes.get(layer["name"], wanted))
        if built != wanted:
            raise Different("layer {}: output {}, the network has {}".format(layer["name"], built, wanted))
        for name, shape in layer["parameters"].items():
            full = layer["name"] + "." + name
            if full not in parameter_shapes:
                raise Different("layer {}: no trained parameter {}".format(layer["name"], name))
            if tuple(parameter_shapes[full]) != tuple(shape):
                raise Different("layer {}: {} {}, the network has {}".format(
                    layer["name"], name, tuple(parameter_shapes[full]), tuple(shape)))
    known = {layer["name"] + "." + name for layer in network["layers"] for name in layer["parameters"]}
    extra = sorted(set(parameter_shapes) - known)
    if extra:
        raise Different("trained parameters that the network has not: " + ", ".join(extra))


class Session:
    """The commands, one method each; holds the runner between them."""

    def __init__(self, runner_class, rank=0):
        self.runner_class = runner_class
        self.rank = rank
        self.runner = None
        self.task = None
        self.weights = None  # the file of those that training began with
        self.parts = {}

    def hello(self):
        versions = {"python": sys.version.split()[0], "numpy": np.__version__, "pid": os.getpid()}
        versions.update(self.runner_class.describe())
        return versions

    def rest(self):
        """Let go of the network and of its memory; the next command is `build`."""
        self.runner = None
        self.parts = {}
        gc.collect()  # frameworks' objects hold each other
        self.runner_class.return_memory()
        return {}

    def build(self, **task):
        self.rest()  # frees the old one's memory first
        self.task = Task(rank=self.rank, **task)
        self.runner = self.runner_class(self.task)
        return {"parameters": int(sum(array.size for array in self.runner.parameters().values()))}

    def load(self, weights):
        with np.load(weights) as arrays:
            self.runner.load({name: arrays[name] for name in arrays.files})
        self.weights = weights
        return {}

    def feed(self, batches, residence):
        with np.load(batches) as arrays:
            self.runner.feed(self._own_rows(arrays["inputs"]), self._own_rows(arrays["targets"]), residence)
        _reset_peak_memory()  # what building and loading took is not the training's
        return {}

    def run(self, steps):
        start, stop = timed_run(self.runner, steps)
        return {"steps": steps, "start": start, "stop": stop, "loss": self.runner.loss(), "peak_memory_bytes": self._peak_memory()}

    def check(self, steps, out):
        """Gradients at the loaded weights, then `steps` steps: their losses, and the parameters they end at."""
        gradients = self.runner.gradients()
        losses = []
        for _ in range(steps):
            timed_run(self.runner, 1)
            losses.append(self.runner.loss())
        if self.rank == 0:  # of all ranks one writes: `copies` tells whether the others hold the same
            arrays = {"gradient/" + name: value for name, value in gradients.items()}
            arrays.update({"parameter/" + name: value for name, value in self.runner.parameters().items()})
            np.savez(out, **arrays)
        return {"losses": losses}

    def copies(self, units=0):
        """A hash of the parameters that each device of this process holds, and where these differ, by how much they are `apart`;
        `beyond` leaves out so many units in the last place."""
        copies = self.runner.copies()
        answer = {"hashes": [_hash(parameters) for parameters in copies]}
        if len(set(answer["hashes"])) > 1:
            with np.load(self.weights) as weights:
                answer["apart"] = _apart(copies, weights, units)
        return answer

    def phase(self, variant, steps):
        """Build a part of the step, once, and time `steps` runs of it; with 0 steps nothing runs, and no rank waits for another."""
        if variant not in self.parts:
            self.parts[variant] = Part(self.runner.variant(variant), self.runner.barrier)
        if not steps:
            return {"steps": 0}
        start, stop = timed_run(self.parts[variant], steps)
        return {"steps": steps, "start": start, "stop": stop}

    def peak(self, size, steps, windows, **task):
        """The (start, stop) of `windows` windows of `steps` products of two `size` x `size` matrices."""
        product = self.runner_class.product(size, Task(None, None, **task))
        product.step()  # compiles and allocates
        return {"windows": [timed_run(product, steps) for _ in range(windows)]}

    def bandwidth(self, elements, steps, windows, **task):
        """The (start, stop) of `windows` windows of `steps` operations that read and write `elements` float32 numbers each."""
        stream = self.runner_class.stream(elements, Task(None, None, **task))
        stream.step()
        return {"windows": [timed_run(stream, steps) for _ in range(windows)]}

    def trace(self, steps, out):
        """What a CUDA device did in `steps` steps, as JSON in the file `out` (runners/tracer.py says what it holds).

        Of all ranks the first is traced; the others run the same steps beside it.
        """
        if self.rank:
            timed_run(self.runner, steps)
            return {}
        from runners import tracer  # here, because only a trace's worker needs it

        try:
            traced = tracer.trace(self.runner, self.task.device, steps)
        except Unsupported:
            timed_run(self.runner, steps)  # the others' steps would wait for this rank's gradients for ever
            raise
        with open(out, "w") as file:
            json.dump(traced, file)
        return {}

    def profile(self, steps, out):
        """What the CPU's threads ran in `steps` steps, by the framework's own profiler, as JSON in the file `out`."""
        if self.task.device != "cpu":
            raise Unsupported("operators are profiled on a CPU; a GPU's kernels are traced")
        window = []
        spans = self.runner.profile(lambda: window.extend(timed_run(self.runner, steps)))
        with open(out, "w") as file:
            json.dump({"steps": steps, "wall_seconds": window[1] - window[0], "spans": spans}, file)
        return {}

    def close(self):
        self.runner = None
        return {}

    def _own_rows(self, samples):
        """This rank's rows of every global batch, (N, n B, ...) -> (N, B, ...); all where one process drives all devices."""
        if self.task.ranks == 1:
            return samples
        first = self.task.rank * self.task.batch
        return np.ascontiguousarray(samples[:, first:first + self.task.batch])

    def _peak_memory(self):
        device = self.runner.peak_memory()
        return _peak_resident_bytes() if device is None else int(device)


class Wire:
    """JSON lines on private duplicates of stdin and stdout. The framework's own stdout goes to stderr, which is the log.

    A rank has a launcher between itself and the driver: it speaks on the driver's socket, DLBENCH_WIRE, and says first who it is.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.rank = int(os.environ[os.environ["DLBENCH_RANK_IN"]]) if "DLBENCH_WIRE" in os.environ else 0
        if "DLBENCH_WIRE" in os.environ:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(os.environ["DLBENCH_WIRE"])
            self.commands, self.out = self.socket.makefile("r"), self.socket.makefile("w")
            self.send(rank=self.rank, pid=os.getpid())
        else:
            self.commands, self.out = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w", 1)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send(self, **message):
        with self.lock:
            self.out.write(json.dumps(message) + "\n")
            self.out.flush()

    def beat_forever(self):
        """Tell the driver that this process is alive, with the processor time it has used."""
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            try:
                self.send(beat=time.monotonic(), cpu_seconds=time.process_time())
            except OSError:  # the driver is gone: so are we, in the middle of whatever we do
                os._exit(1)


def main(name):
    """Serve the class `Runner` of the module `name`, or `module:Class`, until `close`."""
    module_name, _, class_name = name.partition(":")
    wire = Wire()
    pin_to_cores(os.environ.get("DLBENCH_CORES", ""), wire.rank)
    threading.Thread(target=wire.beat_forever, daemon=True).start()
    session = None
    for line in wire.commands:
        message = json.loads(line)
        number, command = message.pop("id"), message.pop("command")
        try:
            if session is None:
                module = importlib.import_module(module_name)
                # a study's worker brings its own session
                session = (module.session() if hasattr(module, "session")
                           else Session(getattr(module, class_name or "Runner"), wire.rank))
            method = getattr(session, command, None)
            if method is None:
                raise Unsupported("this worker has no command '{}'".format(command))
            wire.send(id=number, status="ok", **method(**message))
        except Unsupported as error:
            wire.send(id=number, status="unsupported", reason=str(error))
        except Different as error:
            wire.send(id=number, status="failed", kind="different", reason=str(error))
        except BaseException as error:  # whatever a framework raises becomes a typed answer; the log has the traceback
            traceback.print_exc()
            wire.send(id=number, status="failed", kind=_kind(error), reason=_first_line(error))
        if command == "close":
            break
    sys.stderr.flush()
    os._exit(0)  # frameworks' own exit handlers crash or hang often enough; every record is flushed by now


def pin_to_cores(cores, rank=0):
    """Keep this process and what it starts on its cores, before a framework counts them: "0,2,4"; "0,1;2,3" of two ranks; all
    where empty."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(";")[rank].split(",")})


def _kind(error):
    text = (type(error).__name__ + " " + str(error)).lower()
    memory = isinstance(error, MemoryError) or any(phrase in text for phrase in OUT_OF_MEMORY)
    return "out_of_memory" if memory else "crashed"


def _first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "{}: {}".format(type(error).__name__, lines[0][:300] if lines else "no message")


def _hash(parameters):
    """SHA-256 over names and float32 bytes, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(parameters):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(parameters[name], dtype=np.float32).tobytes())
    return digest.hexdigest()


def _apart(copies, weights, units):
    """By name of each parameter that differs: the largest difference between two copies as a `share` of the largest change that a
    copy has made since `weights`, and that of what is left `beyond` so many units in the last place of the stored values; inf where
    a value is not finite."""
    found = {}
    for name in copies[0]:
        values = [np.ascontiguousarray(copy[name], dtype=np.float32) for copy in copies]
        if len({value.tobytes() for value in values}) == 1:
            continue
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        place = np.spacing(np.maximum(np.abs(low), np.abs(high))).astype(np.float64)
        low, high = low.astype(np.float64), high.astype(np.float64)
        difference = high - low
        change = max(np.abs(bound - weights[name]).max() for bound in (low, high)) or 1.0  # 0 and -0 differ and nothing has changed
        parts = {"share": difference.max() / change, "beyond": np.maximum(difference - units * place, 0).max() / change}
        found[name] = {key: float(part) if np.isfinite(part) else float("inf") for key, part in parts.items()}
    return found


def _peak_resident_bytes():
    """Peak resident set since the last reset (VmHWM), or since the start where /proc has none."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak_memory():
    """Let VmHWM start again from the present resident set (Linux, proc(5), clear_refs 5)."""
    try:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
    except OSError:
        sys.stderr.write("peak memory counts from the start of the process: /proc/self/clear_refs is not writable\n")
