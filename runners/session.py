"""The worker's commands: a method each, whose answer `runners.wire` sends to the driver.

The session owns the arrays (`.npz` files that a command names). It has no statistics and decides
nothing: the driver says how many steps. Python 3.5 syntax, because old frameworks load this file.
"""

import collections
import gc
import json
import os
import sys

import numpy as np

from runners import resources
from runners.arrays import Archive, copied, in_threads, mapped, save, shares
from runners.arrays import batches as batches_of
from runners.comparisons import Comparisons, apart, hash_of
from runners.protocol import Different, Part, Runner, Task, Unsupported, clock, timed_run

# Parts of training from image files: the loader alone, loader and step, the step alone.
FROM_FILES = ("loader", "files", "step")
# Steps before a window of a part.
SETTLED = 2
# Rounds of the ring in which a GPU's step settles: XLA records CUDA graphs after the first step.
FIRST_ROUNDS = 2
# Samples in one batch of `evaluate`.
EVALUATED = 500
# Rows of a batch from which a proof draws their order.
FEWEST_SCATTERED = 16
# The file of one rank's copies of the parameters.
OF_RANK = "rank-{}.npz"


class Session:
    """The commands, one method each; holds the runner between them."""

    # Times the steps that a trace or a profile records.
    timed_run = staticmethod(timed_run)

    def __init__(self, runner_class, rank=0):
        self.runner_class = runner_class
        self.rank = rank
        self.runner = None
        self.task = None
        # The weights that were loaded last, kept if there are several copies of them.
        self.start = None
        # The samples and residence that `train` has fed.
        self.proving = None
        self.comparisons = Comparisons()
        # The number of batches in the ring of `train`, and the next one.
        self.batches = self.next_batch = 0
        # How long the first step took, in which some frameworks compile. On a GPU: the first feed
        # and rounds of the ring.
        self.first_seconds = None
        self.parts = {}
        # The framework's own loader of files, while one is open.
        self.loaded, self.prefetched = None, 0

    def hello(self):
        return described(self.runner_class)

    def rest(self):
        """Free the network and its memory; the next command is `build`."""
        self._forget()
        self._stop_proving()
        gc.collect()
        self.runner_class.return_memory()
        return {}

    def build(self, **task):
        self.rest()
        self.task = Task(rank=self.rank, **task)
        self.runner = self.runner_class(self.task)
        self.first_seconds = None
        sizes = [array.size for array in self.runner.parameters().values()]
        return {"parameters": int(sum(sizes)), "settings": list(self.runner.settings)}

    def load(self, weights):
        self._load(weights)
        return {}

    def feed(self, batches, residence):
        order = "K" if self.runner.keeps_channels_last else "C"
        # Copies: a step must not read through the map of a file where it copies its batch.
        inputs, targets = (self._own_rows(np.array(array, order=order))
                           for array in batches_of(mapped(batches)))
        self._stop_proving()
        self._from_files(False)
        self.runner.feed(inputs, targets, residence)
        # Memory that building and loading took does not count as the training's.
        resources.reset_peak_memory()
        return {}

    def run(self, steps):
        self._stop_proving()
        before = resources.sent_by_node(self.task)
        window = timed(self.runner, steps)
        if before is not None:
            window["network_tx_bytes"] = resources.sent_by_node(self.task) - before
        return dict(window, loss=self.runner.loss(), peak_memory_bytes=self._peak_memory())

    def stages(self, steps):
        """Return in how many seconds of a step this rank's stage of a pipeline computes.

        Then those from its first work of a step to its last; both are means of `steps` steps.
        """
        self._stop_proving()
        return {"stage_seconds": list(self.runner.stage_seconds(steps))}

    def open_files(self, manifest):
        """Open the framework's loader of image files; steps take its batches until a ring is fed.
        """
        described = {name: np.array(array) for name, array in mapped(manifest).items()}
        described["paths"] = described["paths"].tolist()
        try:
            text, batches, self.prefetched = self.runner.files(described)
        except ImportError as error:
            raise Unsupported("the loader of files needs more: {}".format(error)) from error
        self.loaded = iter(batches)
        self._from_files(True)
        resources.reset_peak_memory()
        return {"loader": text}

    def deliver(self, batches, out):
        """Save the next mini-batches of the loader, images as (B, C, H, W)."""
        shape = tuple(self.task.network["input_shape"])
        with Archive(out) as archive:
            for number in range(batches):
                inputs, targets = (np.asarray(each) for each in self._take())
                if inputs.shape[1:] != shape:
                    inputs = np.moveaxis(inputs, -1, 1)
                archive.add("{}/inputs".format(number), inputs.astype(np.float32))
                archive.add("{}/targets".format(number), targets.astype(np.int32))
        return {}

    def train(self, weights, samples, start, steps, out, residence, compare=None):
        """Train `steps` steps from `weights`; save what each leaves behind, by step, kind and name.

        The ring repeats each device's few samples until its batch is full: batch 0 in blocks, batch
        1 in a drawn order. Such a batch has the mean loss, the gradients and the batch statistics
        of its samples. `samples` are a file and the seed of the order. Training begins with batch
        `start`. `weights` are a file and a prefix of its arrays; the file may be an earlier answer.
        Without a file they are the weights that a step of a kept play left; `compare` names the
        play. What `compare` asks for is saved instead of the parameters.
        """
        first, began = self.first_seconds is None and self.task.device == "cuda", clock()
        if self.proving != (samples, residence):
            self._feed_repeated(*samples, residence=residence)
        if first:
            self.runner.prepare_reading()
            # Whole rounds of the ring, so that the same batch comes next.
            for _ in range(FIRST_ROUNDS * self.batches):
                timed_run(self.runner, 1)
            # With the first feed, for which frameworks allocate the device's memory.
            self.first_seconds = clock() - began
        # Train until batch `start` is next: feeding a ring takes longer. Loading undoes the steps.
        while self.next_batch != start:
            self._train_one_step()
            self.next_batch = (self.next_batch + 1) % self.batches
        self._begin_play(*weights, compare)
        losses, hidden = [], ""
        # One rank writes: `copies` tells whether the others hold the same.
        with Archive(os.devnull if self.rank else out) as archive:
            for step in range(1, steps + 1):
                self._train_one_step()
                losses.append(self.runner.loss())
                statistics = {}
                # A comparison of them needs those of the first step.
                if compare is None or (step == 1 and "statistics" in compare):
                    statistics, hidden = self._statistics()
                parameters = self._parameters((compare or {}).get("only"))
                left = {} if self.rank else self._left(parameters, statistics, compare)
                for kind, values in left.items():
                    for name, value in values.items():
                        archive.add("{}/{}/{}".format(step, kind, name), value)
                # A framework may read the next step's parameters into the same memory.
                parameters = left = values = None
        self.proving = samples, residence
        self.next_batch = (start + steps) % self.batches
        return {"losses": losses, "hidden": hidden, "first_seconds": self.first_seconds}

    def snapshot(self, out):
        """Save the present parameters and running statistics by full name."""
        save(out, dict(self.runner.parameters(), **self.runner.statistics()))
        return {}

    def schedule(self, rate, decay):
        self.runner.schedule(rate, decay)
        return {}

    def evaluate(self, inputs, out):
        """Save the outputs in inference mode for the inputs of a file (n, ...), as float32."""
        samples = mapped(inputs)["inputs"]
        found = []
        for first in range(0, len(samples), EVALUATED):
            part = samples[first:first + EVALUATED]
            # A last part is filled with its first sample: compiled code has one shape.
            missing = EVALUATED - len(part)
            whole = np.concatenate([part, np.repeat(part[:1], missing, 0)]) if missing else part
            found.append(np.asarray(self.runner.infer(whole), np.float32)[:len(part)])
        save(out, {"outputs": np.concatenate(found)})
        return {}

    def copies(self, units=0):
        """Hash the parameters of each device, and say how far `apart` they are if they differ.

        `beyond` leaves out differences of up to `units` units in the last place.
        """
        copies = self.runner.copies()
        answer = {"hashes": [hash_of(parameters) for parameters in copies]}
        if len(set(answer["hashes"])) > 1:
            answer["apart"] = apart(copies, self.start, units)
        held = self.runner.held()
        return answer if held is None else dict(
            answer, held=held if isinstance(held, list) else [held])

    def save_copies(self, folder):
        """Save the parameters of each device of this rank, for `apart`."""
        save(os.path.join(folder, OF_RANK.format(self.rank)), {
            "{}/{}".format(number, name): value
            for number, copy in enumerate(self.runner.copies()) for name, value in copy.items()})
        return {}

    def apart(self, folder, units):
        """Compare the copies that all ranks have saved; answer as `copies` does."""
        if self.rank:
            return {"apart": {}}
        copies = collections.defaultdict(dict)
        for rank in range(self.task.ranks):
            for full, value in mapped(os.path.join(folder, OF_RANK.format(rank))).items():
                number, _, name = full.partition("/")
                copies[rank, number][name] = value
        return {"apart": apart(list(copies.values()), self.start, units)}

    def phase(self, variant, steps):
        """Build a part of the step once and time `steps` runs of it; with 0 steps, only build."""
        if variant not in self.parts:
            if variant in FROM_FILES:
                self.parts[variant] = self._part_of_files(variant)
            else:
                self.parts[variant] = self._part(variant)
        return timed(self.parts[variant], steps) if steps else {"steps": 0}

    def peak(self, size, steps, windows, **task):
        """Time windows of `steps` products of two `size` x `size` matrices."""
        return _windows(self.runner_class.product(size, Task(None, None, **task)), steps, windows)

    def bandwidth(self, elements, steps, windows, **task):
        """Time windows of `steps` operations that each read and write `elements` float32."""
        stream = self.runner_class.stream(elements, Task(None, None, **task))
        return _windows(stream, steps, windows)

    def trace(self, steps, out):
        """Write what the first rank's CUDA device did in `steps` steps to the JSON file `out`."""
        if self.rank:
            timed_run(self.runner, steps)
            return {}
        # Only a worker that traces needs it.
        from runners import tracer

        try:
            traced = tracer.trace(self.runner, self.task.device, steps, self.timed_run)
        except Unsupported:
            # The steps of the other ranks wait for this rank's gradients.
            timed_run(self.runner, steps)
            raise
        with open(out, "w") as file:
            json.dump(traced, file)
        return {}

    def profile(self, steps, out):
        """Write what the CPU's threads ran in `steps` steps to the JSON file `out`."""
        if self.task.device != "cpu":
            raise Unsupported("operators are profiled on a CPU; a GPU's kernels are traced")
        window = []
        spans = self.runner.profile(lambda: window.extend(self.timed_run(self.runner, steps)))
        with open(out, "w") as file:
            json.dump({"steps": steps, "wall_seconds": window[1] - window[0], "spans": spans}, file)
        return {}

    def close(self):
        self._forget()
        return {}

    def _forget(self):
        """Let go of the network, and of the loader with its processes."""
        self.runner, self.loaded, self.parts = None, None, {}

    def _take(self):
        """Return the loader's next batch."""
        batch = next(self.loaded, None)
        if batch is None:
            raise Different("the loader of files has ended; its order has no end")
        return batch

    def _from_files(self, wanted):
        """Let steps take the loader's batches, or those of the ring again."""
        self.runner.__dict__.pop("next_batch", None)
        if wanted:
            self.runner.next_batch = self._take

    def _part(self, name):
        """Return a part of the step: the runner's own, or the whole step (FBAU)."""
        has_parts = type(self.runner).variant is not Runner.variant
        if has_parts and name == "A" and self.task.devices == 1:
            raise Unsupported("one device has no gradients to aggregate")
        part = self.runner if has_parts and name == "FBAU" else self.runner.variant(name)
        return Part(part.step, part.synchronize, self.runner.barrier)

    def _part_of_files(self, name):
        """Return a part of training from files. It runs a few steps before each window.

        The loader's part first takes the batches that lie ready, so that its window has none.
        """
        runner = self.runner
        step, before = runner.step, SETTLED
        if name == "loader":
            step, before = self._take, self.prefetched

        def settle():
            self._from_files(name == "files")
            for _ in range(before):
                step()
            runner.synchronize()

        return Part(step, runner.synchronize, settle)

    def _train_one_step(self):
        start, stop = timed_run(self.runner, 1)
        if self.first_seconds is None:
            self.first_seconds = stop - start

    def _statistics(self):
        """Return the running statistics, and why the framework's cannot be read, if so."""
        try:
            return self.runner.statistics(), ""
        except Unsupported as error:
            return {}, str(error)

    def _begin_play(self, file, prefix, compare):
        """Load the weights of a play, and keep what its steps are compared with."""
        kept = compare and "from" in compare and not self.rank
        before = self.comparisons.state(*compare["from"]) if kept else None
        if file:
            self._load(file, prefix)
        else:
            # A copy, because a framework may train in what it has loaded.
            self._load_arrays(copied(before))
        if compare is not None and not self.rank:
            self.comparisons.begin(compare, before or mapped(file))

    def _parameters(self, only):
        """Return the parameters on the rank that compares them and on ranks that gather them."""
        if self.rank and not self.runner.parted:
            return {}
        return self.runner.parameters_of(only) if only else self.runner.parameters()

    def _left(self, parameters, statistics, compare):
        """Return what a step left behind, by kind and name, or sums of it if it is compared."""
        found = {"parameters": parameters} if compare is None else \
            self.comparisons.after_step(parameters)
        return dict(found, statistics=statistics)

    def _stop_proving(self):
        """Forget what the proof has fed and kept."""
        self.proving = None
        self.comparisons = Comparisons()

    def _load(self, weights, prefix=""):
        self._load_arrays({name[len(prefix):]: array
                           for name, array in mapped(weights, "c").items()
                           if name.startswith(prefix)})

    def _load_arrays(self, start):
        self.runner.load(start)
        self.start = start if self.task.devices > 1 else None

    def _feed_repeated(self, samples, order, residence):
        arrays = mapped(samples)
        inputs, targets = arrays["inputs"], arrays["targets"]
        # Transpose the few samples, not the batches that they fill.
        channels_last = inputs.ndim == 6 and self.runner.keeps_channels_last
        if channels_last:
            inputs = np.ascontiguousarray(np.moveaxis(inputs, 3, -1))
        inputs, targets = (repeated(each, self.task, order, self.runner.whole_batch)
                           for each in (inputs, targets))
        if channels_last:
            inputs = np.moveaxis(inputs, -1, 2)
        self.batches, self.next_batch = len(inputs), 0
        self._from_files(False)
        self.runner.feed(inputs, targets, residence)

    def _own_rows(self, samples):
        """Take this rank's rows of every global batch: (N, n B, ...) -> (N, B, ...)."""
        if self.task.ranks == 1 or self.runner.whole_batch:
            return samples
        rows = self.task.batch * self.task.devices // self.task.ranks
        first = self.task.rank * rows
        return np.ascontiguousarray(samples[:, first:first + rows])

    def _peak_memory(self):
        device = self.runner.peak_memory() if self.task.device == "cuda" else None
        return resources.peak_resident_bytes() if device is None else int(device)


def repeated(samples, task, order=0, whole_batch=False):
    """Fill this process's batches (N, n B, ...) with samples (N, devices, s, ...), s dividing B.

    With `whole_batch` it takes the batches of all processes. Even batches repeat samples in blocks,
    odd ones as `scattered` says of the seed `order`.
    """
    local = task.devices if whole_batch else task.devices // task.ranks
    first = 0 if whole_batch else task.rank * local
    own = samples[:, first:first + local]
    count, rest = own.shape[2], own.shape[3:]
    rows = np.arange(task.batch)
    orders = rows // (task.batch // count), scattered(task.batch, count, order)
    filled = np.empty((len(own), local, task.batch) + rest, own.dtype)

    def fill(job):
        batch, device, part = job
        np.take(own[batch, device], orders[batch % 2][part], 0, filled[batch, device, part], "clip")

    in_threads(fill, [(batch, device, part) for batch in range(len(own)) for device in range(local)
                      for part in shares(filled[batch, device])])
    return filled.reshape((len(own), local * task.batch) + rest)


def scattered(batch, count, seed):
    """Return the number of the sample in each row of a batch; each has as many rows.

    The rows that a faulty runner may train on are the first or middle half, or each second row. An
    order drawn from `seed` puts more of some samples there, and also into most other halves. Too
    few rows take turns.
    """
    rows = np.arange(batch)
    if batch < FEWEST_SCATTERED:
        return rows % count
    random = np.random.RandomState(seed)
    key = random.standard_normal(batch)
    for half in (rows < batch // 2, abs(4 * rows - 2 * batch) < batch, rows % 2 == 0):
        key[half] += random.choice([-1, 1])
    order = np.empty(batch, int)
    order[np.argsort(key, kind="mergesort")] = rows // (batch // count)
    return order


def described(runner_class):
    """Return the versions of Python, NumPy and the framework."""
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, "pid": os.getpid()}
    return dict(versions, **runner_class.describe())


def timed(runner, steps):
    start, stop = timed_run(runner, steps)
    return {"steps": steps, "start": start, "stop": stop}


def _windows(product, steps, windows):
    # The first one compiles and allocates.
    product.step()
    return {"windows": [timed_run(product, steps) for _ in range(windows)]}
