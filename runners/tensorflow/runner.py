"""TensorFlow: a Keras 3 model trained by a `tf.function` around `tf.GradientTape`.

Keras's own rule says whether XLA compiles the step: `Model.compile(jit_compile="auto")` in `stock`,
`jit_compile=True` in `compiled`. `tuned` adds what `tiers` lists; `uncompiled` goes without XLA.
Batches are turned to N H W C once, in `feed`; weights and gradients at the border (`layers`).
Several devices train as in TensorFlow's guide to custom training with
`tf.distribute.MirroredStrategy`: `strategy.run` computes on every device, the strategy's
cross-device operations sum the gradients, and Keras's optimizer updates each device's copy.
"""

import contextlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

from runners import protocol
from runners.jax.fusions import NAMELESS, meanings_of
from runners.keras.layers import (
    POLICIES,
    build_model,
    canonical_shape,
    full_name,
    layouts,
    to_canonical,
    to_keras,
)
from runners.protocol import Product
from runners.tensorflow import devices, nodes
from runners.tensorflow.devices import lstm_options, prepare_devices, tiers
from runners.tensorflow.libraries import loaded
from runners.tensorflow.operations import local_response_norm
from runners.tensorflow.profile import operators_of
from runners.tensorflow.update import compiled_update

# Fixed, so that every step does the same work.
FP16_LOSS_SCALE = 1024.0
NOT_POSSIBLE = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError,
                tf.errors.NotFoundError)

# A user's ~/.keras/keras.json may say something else.
keras.config.set_image_data_format("channels_last")
keras.config.set_floatx("float32")


class Runner(protocol.Runner):
    keeps_channels_last = True

    @staticmethod
    def describe():
        build = tf.sysconfig.get_build_info()
        gpus = tf.config.list_physical_devices("GPU")
        built = {name: build[name + "_version"] for name in ("cuda", "cudnn")
                 if name + "_version" in build}
        libraries = {**built, "keras": keras.__version__, **loaded()}
        description = {"release": tf.__version__, "libraries": libraries}
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            description["device_name"] = details.get("device_name", "")
        return description

    def __init__(self, task):
        self.task = task
        self.devices = prepare_devices(task)
        self.strategy = None
        if task.ranks > 1:
            self.strategy = nodes.join(task)
            self.devices = self.strategy.extended.worker_devices
        elif task.devices > 1:
            self.strategy = tf.distribute.MirroredStrategy(
                self.devices, cross_device_ops=devices.STRATEGIES[task.strategy]())
        with self.strategy.scope() if self.strategy else tf.device(self.devices[0]):
            self.model, outputs = build_model(task, lstm_options(task, task.tuning),
                                              local_response_norm)
            self.optimizer = keras.optimizers.SGD(
                float(task.network["learning_rate"]), momentum=float(task.network["momentum"]),
                loss_scale_factor=FP16_LOSS_SCALE if task.precision == "fp16" else None)
            self.optimizer.build(self.model.trainable_variables)
            # Keras's own weight decay passes momentum by, as AdamW's does.
            self.decay = tf.Variable(0.0, trainable=False) if task.scheduled else None
            self.settings = protocol.settings_of(task, tiers(task, self._compiles))
        trained = self.model.trainable_variables
        self.variables = {full_name(variable): variable for variable in trained}
        shapes = {name: canonical_shape(variable) for name, variable in self.variables.items()}
        protocol.assert_network(task.network, outputs, shapes)
        self.layouts = layouts(task.network)
        if self.strategy:
            self._part_seeds()
        self._write_step()
        if task.precision != "fp32" or self.settings:
            protocol.train_on_zeros(self, task, "TensorFlow", NOT_POSSIBLE,
                                    lambda error: " ".join(error.message.split())[:300])

    def _compiles(self, asked):
        """Return whether Keras lets XLA compile the model, when asked with True or "auto"."""
        self.model.compile(self.optimizer, jit_compile=asked, auto_scale_loss=False)
        return bool(self.model.jit_compile)

    def _write_step(self):
        model, optimizer, strategy = self.model, self.optimizer, self.strategy
        variables = model.trainable_variables
        # Casts to float32; mean over B and T. Keras divides it by the number of devices, so sums
        # over them are the global means.
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # None is tf.function's default.
        compiled = True if "XLA" in self.settings else None
        update = compiled_update(self.settings, optimizer, variables, self.decay)

        def compile_for_one(function):
            """XLA compiles a single device's whole step, but of several only what each computes."""
            return tf.function(function, jit_compile=compiled) if strategy else function

        def run_on_all(function):
            # MirroredStrategy would let XLA compile all devices' calls of a tf.function together,
            # which fails; so it is given a lambda.
            return tf.function(
                lambda *batch: strategy.run(lambda *part: function(*part), args=batch))

        def compile_for_all(function):
            return run_on_all(function) if strategy else tf.function(function, jit_compile=compiled)

        def keeping(part):
            """Keep gradients on the device: returning hundreds of arrays takes time."""
            compute = part if strategy else compile_for_all(part)

            def run(inputs, targets):
                loss, gradients = compute(inputs, targets)
                keep(self.kept, gradients)
                return loss

            return run_on_all(run) if strategy else tf.function(run)

        @compile_for_one
        def forward(inputs, targets):
            return loss_function(targets, model(inputs, training=True))

        @compile_for_one
        def local_gradients(inputs, targets):
            with tf.GradientTape() as tape:
                loss = loss_function(targets, model(inputs, training=True))
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, variables)
            # Keras divides by it, which tf.IndexedSlices (embeddings) cannot.
            if optimizer.loss_scale_factor is not None:
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            return loss, update.pack(gradients) if update else gradients

        def mean_gradients(inputs, targets):
            loss, gradients = local_gradients(inputs, targets)
            return loss, aggregate(gradients)

        def aggregate(gradients):
            if not strategy:
                return gradients
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)

        def train_step(inputs, targets):
            loss, gradients = local_gradients(inputs, targets)
            if update:
                update.run(aggregate(gradients))
                return loss
            if self.decay is not None:
                gradients = [gradient + self.decay / self.task.devices * variable
                             for gradient, variable in zip(gradients, variables, strict=True)]
            # An embedding's gradient stays tf.IndexedSlices: Keras's SGD decays every momentum row.
            optimizer.apply(gradients, variables)
            return loss

        self.inference = tf.function(lambda inputs: model(inputs, training=False),
                                     jit_compile=compiled)
        self.train_step, self.aggregate = compile_for_all(train_step), aggregate
        self.local_gradients = compile_for_all(local_gradients)
        self.gradients_held, self.kept = [], []
        self.phases = {"F": compile_for_all(forward), "FB": keeping(local_gradients),
                       "FBA": keeping(mean_gradients)}

    def _part_seeds(self):
        """Let each device drop units of its own: Keras 3 gives all the same random stream."""
        for layer in self.model.layers:
            if isinstance(layer, keras.layers.Dropout):
                # [seed, count]; the seeds of layers lie close together.
                first = self.task.rank * len(self.devices)
                for number, state in enumerate(self._local(layer.seed_generator.state.value),
                                               first):
                    state.assign_add(tf.constant([1000 * number, 0], state.dtype))

    def load(self, weights):
        if set(weights) != set(self.variables):
            other = ", ".join(sorted(set(weights) ^ set(self.variables)))
            raise protocol.Different(f"weights for other parameters: {other}")
        for name, array in to_keras(weights, self.variables, self.layouts).items():
            for held in self._held(self.variables[name]):
                held.assign(array)
        zeros, ones = list(self.optimizer.momentums), []
        for norm in self._batch_norms():
            zeros.append(norm.moving_mean)
            ones.append(norm.moving_variance)
        for fill, variables in ((tf.zeros, zeros), (tf.ones, ones)):
            for held in (held for variable in variables for held in self._held(variable)):
                held.assign(fill(held.shape, held.dtype))

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        # int64, because TensorFlow keeps a function's int32 arguments in host memory.
        kind = np.int64 if self.task.network["vocabulary"] else np.float32
        inputs = np.ascontiguousarray(inputs, kind)
        targets = np.ascontiguousarray(targets, np.int64)
        self.ring = list(zip(inputs, targets, strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.ring = [self._place(batch) for batch in self.ring]
        self.position = 0
        if self.task.device == "cuda":
            for device in self.devices:
                tf.config.experimental.reset_memory_stats(device)

    def files(self, described):
        from runners.tensorflow import files

        return files.load(described, self.task.batch)

    def step(self):
        with self._where():
            self.last_loss = self.train_step(*self.next_batch())

    def synchronize(self):
        # Waits for all streams of every visible device, so for the assignments of the update too.
        # On a CPU a tf.function returns only when its last operation has ended.
        if self.task.ranks == 1:
            tf.test.experimental.sync_devices()
            return
        # That refuses devices of other nodes; a copy of a parameter waits for its device's stream.
        last = min(self.variables.values(), key=lambda variable: variable.shape.num_elements())
        for held in self._local(last.value):
            held.numpy()

    def barrier(self):
        if self.task.ranks > 1:
            nodes.wait_for_all(self.strategy)

    def loss(self):
        # A rank's part of the global mean becomes the mean of its own samples.
        return self.task.ranks * float(np.sum(self._local(self.last_loss)))

    def parameters(self):
        return self.parameters_of(self.variables)

    def parameters_of(self, names):
        return to_canonical({name: viewed(self._local(self.variables[name].value)[0])
                             for name in names}, self.layouts)

    def statistics(self):
        return {f"{norm.name}.{kind}": self._local(variable.value)[0].numpy()
                for norm in self._batch_norms()
                for kind, variable in (("mean", norm.moving_mean),
                                       ("variance", norm.moving_variance))}

    def copies(self):
        copies = {name: self._local(variable.value) for name, variable in self.variables.items()}
        return [to_canonical({name: viewed(held[number]) for name, held in copies.items()},
                             self.layouts) for number in range(len(self.devices))]

    def schedule(self, rate, decay):
        # Keras multiplies by the rate before it adds to momentum, so momentum holds the old one.
        factor = rate / float(self.optimizer.learning_rate.numpy())
        for momentum in self.optimizer.momentums:
            momentum.assign(momentum * factor)
        self.optimizer.learning_rate.assign(rate)
        self.decay.assign(decay)

    def infer(self, inputs):
        if inputs.ndim == 4:
            inputs = inputs.transpose(0, 2, 3, 1)  # (B, C, H, W) -> (B, H, W, C)
        with self._where():
            return self.inference(tf.constant(np.ascontiguousarray(inputs))).numpy()

    def variant(self, name):
        if name != "F" and not self.kept:
            self._make_room()
        if name != "A":
            return self._repeat(lambda: self.phases[name](*self.next_batch()))
        return self._repeat(self._aggregation())

    def _make_room(self):
        """Make each device's variables: `gradients_held` to aggregate, `kept` for the results."""
        with self._where():
            _, gradients = self.local_gradients(*self.batch(0))
        gradients = [self._local(gradient)[0] for gradient in gradients]
        self.rows = [gradient.dense_shape if isinstance(gradient, tf.IndexedSlices) else None
                     for gradient in gradients]
        settings = {"trainable": False, "synchronization": tf.VariableSynchronization.ON_READ}
        with self.strategy.scope() if self.strategy else self._where():
            for part in parts_of(gradients):
                self.gradients_held.append(tf.Variable(part, **settings))
                # Its shape is open, because it also takes the rows of all devices.
                self.kept.append(tf.Variable(part, shape=tf.TensorShape(None), **settings))

    def _aggregation(self):
        def aggregate():
            # An identity has a device, which NCCL needs.
            parts = iter([tf.identity(variable) for variable in self.gradients_held])
            gradients = [next(parts) if shape is None
                         else tf.IndexedSlices(next(parts), next(parts), shape)
                         for shape in self.rows]
            keep(self.kept, self.aggregate(gradients))

        return tf.function(lambda: self.strategy.run(aggregate))

    def peak_memory(self):
        return max(tf.config.experimental.get_memory_info(device)["peak"]
                   for device in self.devices)

    def profile(self, run):
        return operators_of(run)

    def meanings(self, kernels):
        # What several devices run together has no program of its own.
        if "XLA" not in self.settings or self.strategy:
            return {}
        try:
            found = meanings_of(self._program, kernels)
        except (tf.errors.OpError, TypeError, ValueError):
            # An experimental call: a trace without names is better than none.
            return {}
        # If a name is missing, XLA numbered its fusions otherwise this time.
        return found if set(filter(NAMELESS.match, kernels)) == set(found) else {}

    def _program(self):
        with self._where():
            return self.train_step.experimental_get_compiler_ir(*self.batch(0))("optimized_hlo")

    @staticmethod
    def product(size, task):
        device = prepare_devices(task)[0]
        kind = tf.as_dtype(keras.DTypePolicy(POLICIES[task.precision]).compute_dtype)
        with tf.device(device):
            left, right = (tf.cast(tf.random.stateless_normal((size, size), (task.seed, side)),
                                   kind) for side in range(2))

        def multiply():
            with tf.device(device):
                return tf.matmul(left, right)

        return Product(multiply, lambda result: tf.test.experimental.sync_devices())

    @staticmethod
    def stream(elements, task):
        device = prepare_devices(task)[0]
        with tf.device(device):
            source = tf.ones(elements)

        def multiply():
            with tf.device(device):
                return tf.multiply(source, 3.0)

        return Product(multiply, lambda result: tf.test.experimental.sync_devices())

    def _where(self):
        # `strategy.run` knows its devices.
        return contextlib.nullcontext() if self.strategy else tf.device(self.devices[0])

    def batch(self, number):
        batch = super().batch(number)
        return batch if self.on_device else self._place(batch)

    def _place(self, batch):
        if self.strategy:
            return [self.strategy.experimental_distribute_values_from_function(
                lambda context, array=array: self._part(array, context.replica_id_in_sync_group))
                for array in batch]
        return [self._part(array, 0) for array in batch]

    def _part(self, array, number):
        """Copy a device's rows of this process's batch to it; `number` counts over all nodes."""
        rows, number = self.task.batch, number % len(self.devices)
        # Copies: an eager tensor never shares NumPy's memory.
        with tf.device(self.devices[number]):
            return tf.constant(array[number * rows:(number + 1) * rows])

    def _batch_norms(self):
        return [layer for layer in self.model.layers
                if isinstance(layer, keras.layers.BatchNormalization)]

    def _local(self, value):
        """List what each device of this process holds of a value."""
        return self.strategy.experimental_local_results(value) if self.strategy else [value]

    def _held(self, variable):
        """Yield each device's own part of a variable, on its device.

        With it, a load of ResNet-50 on four CPU devices takes 0.69 s. It took 0.93 s by the
        strategy's own assignments and with arrays turned one by one.
        """
        for held in self._local(variable.value):
            with tf.device(held.device):
                yield held

    def _repeat(self, compute):
        def step():
            with self._where():
                return compute()

        return Product(step, lambda result: self.synchronize())


def viewed(held):
    """View a value that TensorFlow brings to the host. `numpy()` would copy it there once more."""
    return np.asarray(tf.convert_to_tensor(held))


def parts_of(gradients):
    """List the arrays of gradients; an embedding's gradient has two: rows and their numbers."""
    sparse = tf.IndexedSlices
    return [part for each in gradients for part in (
        (each.values, each.indices) if isinstance(each, sparse) else (each,))]


def keep(variables, gradients):
    """Assign gradients to variables, without a copy; a graph computes only what is assigned."""
    for variable, part in zip(variables, parts_of(gradients), strict=True):
        variable.assign(part)
