"""The parts of a suite that have keys of their own, and the values that keys may have.

The docstring below a key stands in the documentation's page of suite keys.
"""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from harness.errors import brief
from harness.validation import Strict

# Larger than any machine or anybody's patience: a larger number is a typing error.
MOST_THREADS, MOST_DEVICES, MOST_JOBS, MOST_REPEATS = 4096, 4096, 1024, 100_000
LONGEST_WINDOW, LONGEST_LIMIT = 3600, 7 * 86400


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"input should be a number, is {value}, which YAML reads as a truth value")
    if isinstance(value, str):
        raise ValueError(f"input should be a number, is the text {brief(repr(value), 60)}")
    return value


def _threads(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != "all" and not (whole and 0 < value <= MOST_THREADS):
        raise ValueError(f"input should be a whole number from 1 to {MOST_THREADS}, or all, "
                         f"is {brief(repr(value), 60)}; the default is all")
    return value


WholeNumber = Annotated[int, BeforeValidator(_number)]
PositiveInt = Annotated[WholeNumber, Field(gt=0)]
Repeats = Annotated[PositiveInt, Field(le=MOST_REPEATS)]
Jobs = Annotated[PositiveInt, Field(le=MOST_JOBS)]
Devices = Annotated[PositiveInt, Field(le=MOST_DEVICES)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)]
Seconds = Annotated[Positive, Field(le=LONGEST_LIMIT)]
Threads = Annotated[int | Literal["all"], BeforeValidator(_threads)]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "int8"]
Mode = Literal["training", "inference"]
Scenario = Literal["server", "multistream", "offline"]
# Those of which LoadGen's summary gives the latency.
PERCENTILES = (50, 90, 95, 97, 99, 99.9)
Tuning = Literal["stock", "compiled", "tuned", "uncompiled"]
Scaling = Literal["weak", "strong"]


class NetworkChoice(Strict):
    """What a suite changes for one network. Empty: the suite's value, then the network's own."""

    batches: tuple[PositiveInt, ...] = ()
    """As the suite's."""
    precisions: tuple[Precision, ...] = ()
    """As the suite's."""
    tunings: tuple[Tuning, ...] = ()
    """As the suite's."""
    data: tuple[str, ...] = ()
    """As the suite's."""


class Skip(Strict):
    """What a suite leaves out: every combination that has all the values given."""

    framework: str | None = None
    """Its name."""
    network: str | None = None
    """Its name."""
    precision: Precision | None = None
    """One of the suite's."""
    tuning: Tuning | None = None
    """One of the suite's."""
    strategy: str | None = None
    """Its name, as the records give it."""
    devices: Devices | None = None
    """How many devices train together."""

    @model_validator(mode="after")
    def _say_something(self) -> "Skip":
        if not self.model_dump(exclude_none=True):
            raise ValueError("an entry without a value would skip everything: "
                             "write as in {framework: jax, tuning: tuned}")
        return self


class Check(Strict):
    """The proof of sameness that each process gives before and after its timed windows."""

    batch: Repeats = 2
    """Samples of one device, repeated to fill the timed batch. The reference computes them."""
    steps: Annotated[PositiveInt, Field(le=1000)] = 2
    """Optimizer steps that are compared one by one. Momentum shows from the second on."""


class Limits(Strict):
    """Seconds after which a worker counts as hung."""

    start: Seconds = 300
    """Importing the framework, from a cold disk cache."""
    build: Seconds = 900
    """Building the network, compilers included."""
    check: Seconds = 900
    """One answer of the reference, or the few steps of one play of the proof."""
    window: Seconds = 600
    """One window. The first one compiles."""


class Until(Strict):
    """Train until the test part of the data set is answered well enough."""

    metric: Literal["test_accuracy"] = "test_accuracy"
    """The share of the test part's labels that are right."""
    target: Annotated[Positive, Field(le=1)]
    """The least value of the metric that ends a process."""
    at_most_epochs: Repeats = 40
    """A process that has not reached the target by then fails."""
    seeds: Repeats = 5
    """Processes: each has weights and batches of its own seed, the same in every framework."""
    schedule: tuple[tuple[PositiveInt, Positive], ...] = ()
    """Learning rates by epoch, as in [[1, 0.1], [9, 0.4], [40, 0.01]]: linear in between, constant
    within an epoch and after the last. Empty: the network's own rate."""
    weight_decay: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0
    """So many times each parameter is added to its gradient, before momentum."""
    augmentation: Literal["none", "flip_and_crop"] = "none"
    """flip_and_crop: the driver mirrors images at random and crops them after padding by 4."""
    keep_weights: bool = False
    """Keep what a process has trained in weights/TRIAL-PROCESS.npz, up to 32 MiB a file."""

    @model_validator(mode="after")
    def _order_epochs(self) -> "Until":
        epochs = [epoch for epoch, _ in self.schedule]
        if epochs != sorted(set(epochs)):
            raise ValueError("schedule: write rising epochs, as in [[1, 0.1], [40, 0.01]]")
        return self

    @property
    def scheduled(self) -> bool:
        """Whether a runner must be told a rate or a weight decay while it trains."""
        return bool(self.schedule or self.weight_decay)

    def rate(self, epoch: int, own: float) -> float:
        """Return the learning rate of an epoch; `own` is that of the network."""
        if not self.schedule:
            return own
        epochs, rates = zip(*self.schedule, strict=True)
        return float(np.interp(epoch, epochs, rates))
