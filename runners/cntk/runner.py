"""CNTK 2.7 on a CPU: its layers library and a `Trainer` with `momentum_sgd`, as its tutorials.

Weights are turned at the border to how CNTK stores them (`layers`). Samples, and the words of a
sequence, are dynamic axes that no shape shows. Python 3.5 syntax.

Several devices are processes under mpiexec, whose learner is CNTK's
`data_parallel_distributed_learner`: it sums the gradients of all samples (or sends a bit of each,
and keeps the rest for the next step) before the momentum learner sees them.
"""

import warnings

import numpy as np

# It warns of any Linux but Ubuntu 16.04, and of the GPU that it cannot use.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cntk as C

from runners import protocol
from runners.cntk import transformers
from runners.cntk.layers import build, canonical_shape, output_shapes, to_canonical, to_cntk
from runners.protocol import Product, Unsupported

# Strategy -> bits in which a number of a gradient is sent.
QUANTIZATION_BITS = {"data_parallel": 32, "one_bit": 1}
TIERS = {
    "stock": [],
    "compiled": "CNTK runs its graph's nodes one by one and has no compiler",
    "tuned": "CNTK's documented performance settings are for GPUs and several workers "
             "(optimized_rnnstack is cuDNN's); for a CPU it names none",
    "uncompiled": "CNTK's stock is not compiled",
}
PRECISIONS = {
    "tf32": "TF32 is a format of NVIDIA's tensor cores; the CPU has none",
    "bf16": "CNTK's types are float16, float32 and float64: "
            "'data type \"bfloat16\" is not supported'",
    "fp16": "CNTK trains in float16 on GPUs only; on a CPU its convolution says "
            "'FP16 convolution is only supported via cuDNN.'",
}


class Runner(protocol.Runner):
    @staticmethod
    def describe():
        return {
            "release": C.__version__,
            "device_name": protocol.processor_name(),
            "libraries": {"devices": [str(device) for device in C.device.all_devices()]},
        }

    def __init__(self, task):
        refuse_what_is_missing(task)
        network = task.network
        C.device.try_set_default_device(C.device.cpu())
        # OpenMP's and MKL's.
        C.cntk_py.set_max_num_cputhreads(task.threads)

        self.classes = network["classes"]
        self.input, self.target = make_variables(network)
        # Each rank drops units of its own.
        seed = task.seed + len(network["layers"]) * task.rank
        outputs, self.trained, self.norms = build(task, self.input, seed)
        self.ops = {layer["name"] + "." + name: layer["op"]
                    for layer in network["layers"] for name in layer["parameters"]}
        shapes = {name: canonical_shape(parameter.shape, self.ops.get(name))
                  for name, parameter in self.trained.items()}
        protocol.assert_network(network, output_shapes(network, outputs), shapes)

        self.task = task
        self.communicator = None
        if task.ranks > 1:
            self.communicator = C.train.distributed.mpi_communicator()
        self.model = outputs[network["layers"][-1]["name"]]
        self.tokens = bool(network["target_shape"]) and has_attention(network)
        loss = transformers.mean_loss if self.tokens else C.cross_entropy_with_softmax
        self.criterion = loss(self.model, self.target)
        self.learner = make_learner(list(self.trained.values()), network)
        self.trainer = self._trainer(self.learner, task.strategy)

    def load(self, weights):
        for name, parameter in self.trained.items():
            parameter.value = to_cntk(weights[name], parameter.shape, self.ops[name])
        for norm in self.norms.values():
            fill(norm.aggregate_mean, 0)
            fill(norm.aggregate_variance, 1)
            # With a count of 0 the first batch would take the place of these.
            fill(norm.aggregate_count, 1)
        # CNTK calls the momentum smoothed gradients.
        self.learner.reset_smoothed_gradients()
        # CNTK has no call that forgets what was not sent yet.
        if QUANTIZATION_BITS.get(self.task.strategy, 32) < 32:
            self.trainer = self._trainer(self.learner, self.task.strategy)

    def feed(self, inputs, targets, residence):
        # (N, B, ...); numbers of words too, because gather takes floats.
        inputs = np.ascontiguousarray(inputs, np.float32)
        self.on_device = residence == "device"
        self.ring = [self._place(batch) if self.on_device else batch
                     for batch in zip(inputs, targets)]
        self.position = 0

    def step(self):
        self.trainer.train_minibatch(self._next())

    # On the CPU train_minibatch returns when the learner has updated the parameters.
    synchronize = staticmethod(protocol.nothing)

    def barrier(self):
        if self.communicator:
            self.communicator.barrier()

    def loss(self):
        # Over samples, or words; of all ranks.
        return float(self.trainer.previous_minibatch_loss_average)

    def parameters(self):
        return {name: to_canonical(parameter.value, self.ops[name])
                for name, parameter in self.trained.items()}

    def statistics(self):
        return {name + "." + kind: constant.value for name, norm in self.norms.items()
                for kind, constant in (("mean", norm.aggregate_mean),
                                       ("variance", norm.aggregate_variance))}

    def variant(self, name):
        parameters = list(self.trained.values())
        if name == "F":
            output = self.criterion.output
            return Product(lambda: self.criterion.forward(
                self._next(), [output], {output}, as_numpy=False), done)
        if name == "A":
            return self._aggregation()
        trainer = {"FB": lambda: self._local_trainer(Idle(parameters)),
                   "FBA": lambda: self._trainer(Idle(parameters), self.task.strategy)}[name]()
        return Product(lambda: trainer.train_minibatch(self._next()), done)

    def _trainer(self, learner, strategy):
        """Return a trainer whose `learner` is given the gradients of all ranks."""
        if self.communicator:
            learner = C.train.distributed.data_parallel_distributed_learner(
                learner, num_quantization_bits=QUANTIZATION_BITS[strategy])
        return self._local_trainer(learner)

    def _local_trainer(self, learner):
        return C.Trainer(self.model, self.criterion, [learner])

    def _aggregation(self):
        if self.task.strategy != "data_parallel":
            raise Unsupported("CNTK keeps what '{}' did not send inside of its learner, which "
                              "cannot aggregate alone".format(self.task.strategy))
        workers = self.communicator.workers()
        buffers = [C.NDArrayView.from_dense(np.zeros(parameter.shape, np.float32))
                   for parameter in self.trained.values()]
        return Product(lambda: self.communicator.aggregate_in_place(buffers, workers), done)

    def _next(self):
        batch = self.next_batch()
        inputs, targets = batch if self.on_device else self._place(batch)
        return {self.input: inputs, self.target: targets}

    def _place(self, batch):
        """Copy a batch to CNTK's memory; targets (B) or (B, T) become one-hot, and sparse."""
        inputs, targets = batch
        if self.tokens:
            return C.Value(batch=inputs), C.Value(batch=targets.astype(np.float32))
        return C.Value(batch=inputs), C.Value.one_hot(targets.tolist(), self.classes)


def fill(constant, number):
    array = np.full(constant.shape, number, np.float32)
    constant.set_value(C.NDArrayView.from_dense(array))


def make_variables(network):
    """Return the variables of inputs and one-hot targets, without the axes of batch and words.

    The words of a Transformer are a static axis, and its targets are their numbers.
    """
    classes = network["classes"]
    if network["vocabulary"] and has_attention(network):
        return tuple(C.input_variable((length,)) for length in network["input_shape"] * 2)
    if network["vocabulary"]:
        variable = C.sequence.input_variable
        return variable(()), variable(classes, is_sparse=True)
    shape = tuple(network["input_shape"])
    return C.input_variable(shape), C.input_variable(classes, is_sparse=True)


def has_attention(network):
    return any(layer["op"].endswith("attention") for layer in network["layers"])


def make_learner(parameters, network):
    """v = m v + g, w = w - lr v with g of the mean loss: no unit gain, no scale by batch size."""
    ignore = C.learners.IGNORE
    rate = C.learning_parameter_schedule(network["learning_rate"], minibatch_size=ignore)
    momentum = C.momentum_schedule(network["momentum"], minibatch_size=ignore)
    return C.momentum_sgd(parameters, rate, momentum, unit_gain=False, minibatch_size=ignore)


class Idle(C.learners.UserLearner):
    """A learner that leaves the parameters as they are."""

    def __init__(self, parameters):
        super().__init__(parameters, C.learning_parameter_schedule(1.0), as_numpy=False)

    def update(self, gradient_values, training_sample_count, sweep_end):
        return True


def done(_):
    """On the CPU nothing is under way once a call has returned."""


def refuse_what_is_missing(task):
    protocol.settings_of(task, TIERS)
    if task.device != "cpu":
        raise Unsupported("device '{}': {}".format(task.device, what_the_gpu_says()))
    if task.precision != "fp32":
        raise Unsupported(PRECISIONS.get(
            task.precision, "precision '{}': this runner has fp32".format(task.precision)))
    protocol.refuse_unknown(task, strategies=sorted(QUANTIZATION_BITS))
    if task.ranks > 1 and C.Communicator.num_workers() != task.ranks:
        raise RuntimeError("CNTK sees {} of {} processes: mpiexec must be of the Open MPI whose "
                           "libraries CNTK loads".format(C.Communicator.num_workers(), task.ranks))


def what_the_gpu_says():
    try:
        return "this runner is for the wheel `cntk`, which is the CPU's; here CNTK has {}".format(
            C.device.gpu(0))
    except ValueError as error:
        said = str(error).strip().splitlines()[0]
        return "the wheel `cntk` is the CPU's, and C.device.gpu(0) answers \"{}\"".format(said)
