"""TensorFlow: a Keras 3 functional model trained by a `tf.function` around `tf.GradientTape`, as Keras's guide to custom loops.

Keras keeps images N H W C, kernels [in, out] and [kh, kw, in, out], gates i f c o (c is the canonical g). Batches are turned
once, in `feed`; weights and gradients at the border (`_layouts`). `flatten` stays Keras's own, so the dense layer behind it
reads its features in the order H W C: its weights are permuted at the border instead of its input in every step.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

from runners import protocol

POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
FP16_LOSS_SCALE = 1024.0  # fixed, so that every step does the same work
NOT_POSSIBLE = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.NotFoundError)
KERAS_ORDER = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}  # of the axes of vectors, [out, in] and [out, in, kh, kw]
CANONICAL_NAMES = {
    "kernel": "weight", "bias": "bias", "gamma": "scale", "beta": "shift", "embeddings": "weight",
    "lstm_cell/kernel": "weight_input", "lstm_cell/recurrent_kernel": "weight_hidden", "lstm_cell/bias": "bias",
}

keras.config.set_image_data_format("channels_last")  # not what a user's ~/.keras/keras.json may say
keras.config.set_floatx("float32")


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        build = tf.sysconfig.get_build_info()
        libraries = {name: build[name + "_version"] for name in ("cuda", "cudnn") if name + "_version" in build}
        description = {"release": tf.__version__, "keras": keras.__version__, "libraries": libraries}
        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            description["device_name"] = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "")
        return description

    def __init__(self, task):
        if task.tuning not in ("stock", "tuned"):
            raise protocol.Unsupported(f"tuning '{task.tuning}': TensorFlow has stock and tuned")
        self.task = task
        self.device = _prepare_device(task)
        with tf.device(self.device):
            self.model, outputs = _build_model(task)
            self.optimizer = keras.optimizers.SGD(
                float(task.network["learning_rate"]), momentum=float(task.network["momentum"]),
                loss_scale_factor=FP16_LOSS_SCALE if task.precision == "fp16" else None)
            self.optimizer.build(self.model.trainable_variables)
        self.variables = {_full_name(variable): variable for variable in self.model.trainable_variables}
        shapes = {name: _canonical_shape(variable) for name, variable in self.variables.items()}
        protocol.assert_network(task.network, outputs, shapes)
        self.layouts = _layouts(task.network)
        self._write_step()
        if (task.precision, task.tuning) != ("fp32", "stock"):
            self._prove_possible()

    def _write_step(self):
        model, optimizer = self.model, self.optimizer
        variables = model.trainable_variables
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # casts to float32, mean over B and T

        def loss_and_gradients(inputs, targets):
            with tf.GradientTape() as tape:
                loss = loss_function(targets, model(inputs, training=True))
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, variables)
            if optimizer.loss_scale_factor is not None:  # Keras divides by it, which tf.IndexedSlices (embeddings) cannot
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            return loss, gradients

        compiled = True if self.task.tuning == "tuned" else None  # XLA (tensorflow.org/xla); None is tf.function's default

        @tf.function(jit_compile=compiled)
        def train_step(inputs, targets):
            loss, gradients = loss_and_gradients(inputs, targets)
            # An embedding's gradient stays tf.IndexedSlices: Keras's SGD decays the momentum of every row, not only of those.
            optimizer.apply(gradients, variables)
            return loss

        @tf.function(jit_compile=compiled)
        def only_gradients(inputs, targets):
            scale = optimizer.loss_scale_factor or 1.0
            return [tf.convert_to_tensor(gradient) / scale for gradient in loss_and_gradients(inputs, targets)[1]]

        self.train_step, self.only_gradients = train_step, only_gradients

    def _prove_possible(self):
        """Train one step on zeros, because kernels that lack a type or a compiler's lowering tell so only when they run."""
        network, weights = self.task.network, self.parameters()
        inputs = np.zeros((1, self.task.batch) + tuple(network["input_shape"]), np.float32)
        targets = np.zeros((1, self.task.batch) + tuple(network["target_shape"]), np.int32)
        self.feed(inputs, targets, "device")
        try:
            self.step()
            self.synchronize()
        except NOT_POSSIBLE as error:
            reason = " ".join(error.message.split())[:300]
            what = f"{self.task.precision} {self.task.tuning} on {self.task.device}"
            raise protocol.Unsupported(f"TensorFlow cannot train {network['name']} in {what}: {reason}") from error
        self.load(weights)

    def load(self, weights):
        if set(weights) != set(self.variables):
            raise protocol.Different("weights for other parameters: " + ", ".join(sorted(set(weights) ^ set(self.variables))))
        for name, variable in self.variables.items():
            variable.assign(_to_keras(weights[name], variable.shape, self.layouts[name]))
        for momentum in self.optimizer.momentums:
            momentum.assign(tf.zeros_like(momentum))

    def feed(self, inputs, targets, residence):
        if inputs.ndim == 5:
            inputs = inputs.transpose(0, 1, 3, 4, 2)  # (N, B, C, H, W) -> (N, B, H, W, C)
        # int64, because TensorFlow keeps a function's int32 arguments in host memory even when it runs on a GPU.
        inputs = np.ascontiguousarray(inputs, np.int64 if self.task.network["vocabulary"] else np.float32)
        targets = np.ascontiguousarray(targets, np.int64)
        self.batches = list(zip(inputs, targets, strict=True))
        self.on_device = residence == "device"
        if self.on_device:
            self.batches = [self._place(batch) for batch in self.batches]
        self.next = 0
        if self.task.device == "cuda":
            tf.config.experimental.reset_memory_stats("GPU:0")

    def step(self):
        batch = self.batches[self.next]
        self.next = (self.next + 1) % len(self.batches)
        with tf.device(self.device):
            self.last_loss = self.train_step(*(batch if self.on_device else self._place(batch)))

    def synchronize(self):
        # Waits for all streams of every visible device, so for the assignments of the update too; the loss is ready before them.
        # On a CPU a tf.function returns only when its last operation, assignments included, has ended.
        tf.test.experimental.sync_devices()

    def loss(self):
        return float(self.last_loss)

    def gradients(self):
        batch = self.batches[0]
        with tf.device(self.device):
            gradients = self.only_gradients(*(batch if self.on_device else self._place(batch)))
        return {name: self._canonical(name, gradient) for name, gradient in zip(self.variables, gradients, strict=True)}

    def parameters(self):
        return {name: self._canonical(name, variable) for name, variable in self.variables.items()}

    def peak_memory(self):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] if self.task.device == "cuda" else None

    @staticmethod
    def product(size, task):
        device = _prepare_device(task)
        kind = tf.as_dtype(keras.DTypePolicy(POLICIES[task.precision]).compute_dtype)
        with tf.device(device):
            left, right = (tf.cast(tf.random.stateless_normal((size, size), (task.seed, side)), kind) for side in range(2))

        def multiply():
            with tf.device(device):
                return tf.matmul(left, right)

        return protocol.Product(multiply, lambda result: tf.test.experimental.sync_devices())

    def _place(self, batch):
        with tf.device(self.device):
            return [tf.constant(array) for array in batch]  # copies: an eager tensor never shares a NumPy array's memory

    def _canonical(self, name, tensor):
        return np.ascontiguousarray(_to_canonical(tensor.numpy(), self.layouts[name]), np.float32)


def _prepare_device(task):
    """Fix devices, threads and TF32 for this process, before its first operation, and return the device's name."""
    if task.precision not in POLICIES:
        raise protocol.Unsupported(f"precision '{task.precision}': TensorFlow has {', '.join(POLICIES)}")
    if task.precision == "tf32" and task.device != "cuda":
        raise protocol.Unsupported("TF32 is a format of NVIDIA tensor cores")
    gpus = tf.config.list_physical_devices("GPU")
    if task.device == "cuda" and not gpus:
        kind = "a CUDA build" if tf.test.is_built_with_cuda() else "a build without CUDA"
        raise protocol.Unsupported(f"TensorFlow sees no GPU: tf.config.list_physical_devices('GPU') is empty in {kind}")
    try:
        visible = gpus[:1] if task.device == "cuda" else []  # hidden GPUs cannot be used by accident
        tf.config.set_visible_devices(visible, "GPU")
        for gpu in visible:
            tf.config.experimental.set_memory_growth(gpu, True)  # else TensorFlow takes all memory and its peak says nothing
        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    except RuntimeError as error:
        raise protocol.Unsupported(f"TensorFlow fixes devices and threads once a process, start another: {error}") from error
    tf.config.experimental.enable_tensor_float_32_execution(task.precision == "tf32")
    return "/GPU:0" if task.device == "cuda" else "/CPU:0"


def _build_model(task):
    """Return the Keras model and the canonical output shape of each of its layers, without the batch."""
    network = task.network
    policy = keras.DTypePolicy(POLICIES[task.precision])  # by layer: a global policy would outlive this task
    batch_shape = (task.batch,) + _image_last(network["input_shape"])
    tensors = {"input": keras.Input(batch_shape=batch_shape, dtype="int64" if network["vocabulary"] else "float32", name="input")}
    for number, layer in enumerate(network["layers"]):
        inputs = [tensors[source] for source in layer["inputs"]]
        if layer["op"] == "dropout" and not task.dropout:
            tensors[layer["name"]] = inputs[0]
        else:
            tensors[layer["name"]] = _lower(layer, inputs, policy, task.seed + number)
    outputs = {name: _image_first(tensor.shape[1:]) for name, tensor in tensors.items()}
    return keras.Model(tensors["input"], tensors[network["layers"][-1]["name"]]), outputs


def _lower(layer, inputs, policy, seed):
    """Apply one layer of the network to Keras tensors, images N H W C."""
    op, attributes, x = layer["op"], layer["attributes"], inputs[0]
    options = {"name": layer["name"], "dtype": policy}
    layers = keras.layers
    if op == "dense" and len(x.shape) < 4:  # on an image, Keras's last axis is C and the network's is W
        return layers.Dense(attributes["units"], **options)(x)
    if op == "conv2d":
        kernel, stride, padding = attributes["kernel"], attributes["stride"], attributes["padding"]
        same = stride == 1 and kernel == 2 * padding + 1  # elsewhere Keras's "same" may pad one side more than the other
        if padding and not same:
            x = layers.ZeroPadding2D(padding, name=layer["name"] + "_padding", dtype=policy)(x)
        return layers.Conv2D(attributes["filters"], kernel, strides=stride, padding="same" if same else "valid",
                             use_bias=attributes["bias"], **options)(x)
    if op == "max_pool":
        if attributes["padding"]:
            sides = [attributes["padding"]] * 2
            x = keras.ops.pad(x, [[0, 0], sides, sides, [0, 0]], constant_values=-np.inf)
        return layers.MaxPooling2D(attributes["kernel"], strides=attributes["stride"], **options)(x)
    if op == "avg_pool":
        return layers.AveragePooling2D(attributes["kernel"], strides=attributes["stride"], **options)(x)
    if op == "global_avg_pool":
        return layers.GlobalAveragePooling2D(**options)(x)
    if op in ("relu", "sigmoid"):
        return layers.Activation(op, **options)(x)
    if op == "dropout":
        return layers.Dropout(attributes["rate"], seed=seed, **options)(x)
    if op == "batch_norm":
        return layers.BatchNormalization(epsilon=attributes["epsilon"], **options)(x)
    if op == "add":
        return layers.Add(**options)(inputs)
    if op == "flatten":
        return layers.Flatten(**options)(x)
    if op == "subsample":
        return x[:, ::attributes["stride"], ::attributes["stride"], :]
    if op == "pad_channels":
        return keras.ops.pad(x, [[0, 0], [0, 0], [0, 0], [0, attributes["extra"]]])
    if op == "embedding":
        return layers.Embedding(attributes["vocabulary"], attributes["units"], **options)(x)
    if op == "lstm":  # "auto", Keras's default, takes cuDNN's kernel on a GPU (its second bias stays zero there)
        # In bfloat16 it leaves gradients unwritten (TensorFlow 2.21, cuDNN 9.19, H200): all but the last layer learn nothing.
        kernel = False if policy.compute_dtype == "bfloat16" else "auto"
        return layers.LSTM(attributes["units"], return_sequences=True, use_cudnn=kernel, **options)(x)
    raise protocol.Unsupported(f"layer {layer['name']}: {op} on {_image_first(x.shape[1:])} has no lowering in this runner")


def _layouts(network):
    """Map each parameter to (canonical shape, that shape with a flattened C H W taken apart, Keras's order of those axes)."""
    layouts, shapes = {}, {"input": tuple(network["input_shape"])}
    flattened = {"input": ()}  # the C H W whose flattening a layer's features are, in Keras's order
    for layer in network["layers"]:
        name, op = layer["name"], layer["op"]
        images = {flattened[source] for source in layer["inputs"]}
        if len(images) > 1:
            raise protocol.Unsupported(f"layer {name}: adds features in the orders H W C and C H W")
        image = images.pop()
        for parameter, shape in layer["parameters"].items():
            axes = (shape[0], *image) if op == "dense" and parameter == "weight" and image else tuple(shape)
            order = tuple(range(len(axes))) if op == "embedding" else KERAS_ORDER[len(axes)]
            layouts[f"{name}.{parameter}"] = tuple(shape), axes, order
        shapes[name] = tuple(layer["output_shape"])
        flattened[name] = shapes[layer["inputs"][0]] if op == "flatten" else () if op == "dense" else image
    if flattened[name]:
        raise protocol.Unsupported(f"layer {name}: the classes are a flattened image, in the order H W C")
    return layouts


def _to_keras(array, shape, layout):
    _, axes, order = layout
    return array.reshape(axes).transpose(order).reshape(shape)


def _to_canonical(array, layout):
    shape, axes, order = layout
    return array.reshape([axes[axis] for axis in order]).transpose(np.argsort(order)).reshape(shape)


def _full_name(variable):
    """`lstm1/lstm_cell/kernel` -> `lstm1.weight_input`; names that the network has not are for `assert_network` to refuse."""
    layer, _, parameter = variable.path.partition("/")
    return f"{layer}.{CANONICAL_NAMES.get(parameter, parameter)}"


def _canonical_shape(variable):
    shape = tuple(variable.shape)
    order = (3, 2, 0, 1) if len(shape) == 4 else (1, 0)
    return shape if len(shape) == 1 or variable.path.endswith("embeddings") else tuple(shape[axis] for axis in order)


def _image_last(shape):
    return tuple(shape) if len(shape) != 3 else (shape[1], shape[2], shape[0])


def _image_first(shape):
    return tuple(shape) if len(shape) != 3 else (shape[2], shape[0], shape[1])
