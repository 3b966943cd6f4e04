"""A suite: what to measure, read from YAML with `key=value` overrides and checked whole.

Every key has a default, and below it a docstring that the documentation's page of suite keys shows.
`harness.plan.planner` turns a suite into trials.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, Field, model_validator

import networks
from harness import plain_yaml
from harness.data import data_sets
from harness.environments import recipes as frameworks
from harness.errors import WrongUse, brief
from harness.validation import Strict, did_you_mean, read_yaml, short, validate

# Beyond any machine or patience: a larger number is a slip.
MOST_THREADS, MOST_DEVICES, MOST_JOBS, MOST_REPEATS = 4096, 4096, 1024, 100_000
LONGEST_WINDOW, LONGEST_LIMIT = 3600, 7 * 86400
MOST_TRIALS = 5000


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
Scenario = Literal["multistream", "offline"]
Tuning = Literal["stock", "compiled", "tuned", "uncompiled"]
Scaling = Literal["weak", "strong"]
SHORTHANDS = {"batch": "batches", "network": "networks", "framework": "frameworks",
              "precision": "precisions", "tuning": "tunings", "strategy": "strategies"}


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


class Server(Strict):
    """A server's requests: which share of them must be answered how soon."""

    latency_seconds: Positive
    """From a request's arrival to its answer."""
    share: Annotated[Positive, Field(lt=1)] = 0.99
    """Of the requests. 0.99 needs 299 requests for each rate that is tried."""


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


class Suite(Strict):
    """What to measure. Unknown keys are errors.

    One value may stand for a list of one, and `batch`, `network`, `framework`, `precision`,
    `tuning` and `strategy` for the keys that are their plural. The command line overrides keys:
    `dlbench run configs/smoke.yaml devices=1,2 batch=64 check.steps=5`.
    """

    title: Annotated[str, Field(max_length=200)] = ""
    """The report's title."""
    mode: Mode = "training"
    """inference: run trained networks and keep the time of every call."""
    until: Until | None = None
    """Train to a test accuracy, as in {target: 0.9}, one seed a process."""
    server: Server | None = None
    """In inference: seek the highest rate of random requests as in {latency_seconds: 0.1}."""
    scenarios: tuple[Scenario, ...] = ()
    """In inference: MLPerf's scenarios by its LoadGen, for window_seconds times windows each."""
    frameworks: tuple[str, ...] = ("pytorch", "tensorflow")
    """Names, or releases as in pytorch==2.12.0."""
    networks: dict[str, NetworkChoice] = Field(default_factory=dict)
    """Names, or a mapping with changes as in fcn5: {batch: 512}. Default: all."""
    batches: tuple[PositiveInt, ...] = ()
    """Samples in a mini-batch of one device. Empty: each network's own."""
    device: Literal["auto", "cpu", "cuda", "both"] = "auto"
    """auto: cuda if a GPU is present. both: each trial on cpu and on cuda."""
    devices: tuple[Devices, ...] = (1,)
    """How many devices train together, of each node."""
    nodes: tuple[Devices, ...] = (1,)
    """How many nodes of the allocation train together, each with all of `devices`."""
    scaling: tuple[Scaling, ...] = ("weak",)
    """weak: the batch on each device. strong: the batch split among them."""
    strategies: tuple[str, ...] = ("default",)
    """How devices share the work. default: the framework's first for this kind of device."""
    phases: bool = False
    """Time nested parts of the step too: F, FB, FBA, FBAU and A (phases.csv)."""
    threads: tuple[Threads, ...] = ("all",)
    """CPU threads of a worker, pinned to as many cores."""
    precisions: tuple[Precision, ...] = ("fp32",)
    """fp32 is IEEE: TF32 off. int8 is for mode: inference."""
    tunings: tuple[Tuning, ...] = ("stock",)
    """Tiers. stock: what the framework's documentation teaches first. compiled: with its one-line
    compiler too. tuned: all its performance guide says. uncompiled: without the compiler of stock.
    """
    data: tuple[str, ...] = ("auto",)
    """device, host, real, files, or auto: real if the data set is present, else host. files: the
    framework's own loader reads image files, and a verdict says whether it or the step is slower.
    """
    skip: tuple[Skip, ...] = ()
    """Combinations to leave out, as in [{framework: jax, tuning: tuned}]."""
    processes: Repeats = 5
    """Repetitions: the unit of the confidence interval, which needs 3 and is honest from 5 on."""
    interval: Annotated[Positive, Field(le=1)] | None = None
    """As 0.02: run further processes until the interval is at most 2 % to either side."""
    processes_most: Repeats = 20
    """The limit of `interval`. A width that has not come by then rarely comes."""
    windows: Repeats = 8
    """Timed windows of a process."""
    window_seconds: Annotated[Positive, Field(le=LONGEST_WINDOW)] = 0.5
    """Shortest timed window. Timer and synchronization then cost below 0.1 %."""
    window_steps: PositiveInt = 1
    """Fewest steps of a timed window. Published rows of a GPU need 10."""
    telemetry: bool = True
    """Sample traffic, energy and clocks. false shows that sampling changes nothing."""
    seed: Annotated[WholeNumber, Field(ge=0)] = 1
    """Of weights, batches and execution order."""
    trace: bool = True
    """On CUDA devices: trace each trial's kernels in one more worker (kernels.csv), never timed."""
    profile: bool = False
    """On CPUs: profile each trial in one more worker (operators.csv), for `dlbench explain`."""
    peaks: bool = True
    """Measure the machine's matrix-product peak: gives mfu and a bound on every row."""
    check: Check = Check()
    """The proof of sameness."""
    check_jobs: Jobs = 1
    """Networks that the reference answers for at a time, before anything is timed."""
    prepare_jobs: Jobs = 1
    """Processes that get ready at a time. They share device memory and are timed one by one."""
    keep_workers: bool = False
    """Let a worker serve one process of several similar trials: ranks of many GPUs start slowly."""
    limits: Limits = Limits()
    """Time limits."""
    interpreters: dict[str, Path] = Field(default_factory=dict)
    """framework[==release]: an interpreter that has it."""

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, data: Any) -> Any:
        """Accept one value for a list of one, and a list of names for a mapping of networks."""
        if not isinstance(data, dict):
            return data
        data = _lists(cls, data)
        for key, value in data.items():
            if value == [None]:
                raise ValueError(f"{key}: there is no value; {_remedy(cls, key)}")
        until = data.get("until")
        if isinstance(until, dict):
            seeds = until.get("seeds", Until.model_fields["seeds"].default)
            if data.setdefault("processes", seeds) != seeds:
                raise ValueError(f"processes: {data['processes']} of them for {seeds} seeds; each "
                                 "is one seed: write until.seeds, and leave processes out")
        chosen = data.get("networks", networks.names(large=False))
        if isinstance(chosen, str):
            chosen = [chosen]
        if isinstance(chosen, list):
            if not all(isinstance(name, str) for name in chosen):
                raise ValueError("networks: write a list of names, "
                                 "or a mapping as in fcn5: {batch: 512}")
            chosen = dict.fromkeys(chosen)
        if isinstance(chosen, dict):
            data["networks"] = {name: _lists(NetworkChoice, choice or {})
                                for name, choice in chosen.items()}
        return data

    @model_validator(mode="after")
    def _know_the_networks(self) -> "Suite":
        every = [*networks.names(), *networks.names(small=True)]
        for name in self.networks:
            if name not in every:
                near = did_you_mean(name, networks.names())
                raise ValueError(f"networks: unknown network {name}{near}")
        for key in ("frameworks", "networks", "devices", "nodes", "scaling", "strategies",
                    "threads", "precisions", "tunings", "data"):
            if not getattr(self, key):
                raise ValueError(f"{key}: the list is empty; {_remedy(type(self), key)}")
        for skip in self.skip:
            for key, names in (("network", every), ("framework", frameworks.names())):
                name = getattr(skip, key)
                if name is not None and name not in names:
                    raise ValueError(f"skip: unknown {key} {name}{did_you_mean(name, names)}")
        chosen = [strategy for strategy in self.strategies if strategy != "default"]
        offered = ["default", *frameworks.strategies()] if chosen else []
        for strategy in chosen:
            if strategy not in offered:
                near = did_you_mean(strategy, offered)
                raise ValueError(f"strategies: unknown strategy {strategy}{near}")
        if chosen and max(self.devices) * max(self.nodes) == 1:
            raise ValueError(f"strategies: {', '.join(chosen)}: one device has nothing to "
                             "aggregate; write devices of 2 or more, or leave strategies out")
        if self.until:
            self._refuse_beside_until()
        if self.mode == "inference":
            self._refuse_training()
        else:
            for key in ("server", "scenarios"):
                if getattr(self, key):
                    raise ValueError(f"{key}: requests are answered by trained networks; "
                                     "write mode: inference")
        if self.interval is not None and not 3 <= self.processes <= self.processes_most:
            raise ValueError("interval: needs 3 processes or more, and no more than "
                             f"processes_most ({self.processes_most})")
        for spec in self.interpreters:
            try:
                frameworks.parse(spec)
            except WrongUse as error:
                raise ValueError(f"interpreters: {error}") from None
        self._refuse_many()
        known = ("auto", "device", "host", "real", "files", *data_sets.names())
        of_networks = [each for choice in self.networks.values() for each in choice.data]
        for data in (*self.data, *of_networks):
            if data not in known:
                raise ValueError(f"data: unknown data {data}{did_you_mean(data, known)}")
        return self

    def _refuse_beside_until(self) -> None:
        """Raise ValueError for what is not measured while training to a target."""
        if self.mode == "inference":
            raise ValueError("until: a trained network is not trained again; "
                             "write mode: training, or leave until out")
        if (self.devices, self.nodes) != ((1,), (1,)):
            raise ValueError("until: trains on one device; write devices: 1 and nodes: 1, "
                             "or leave until out")
        for key in ("phases", "interval", "keep_workers"):
            if getattr(self, key):
                raise ValueError(f"{key}: is for training that is timed alone; leave it out, "
                                 "or leave until out")

    def _refuse_training(self) -> None:
        """Raise ValueError for keys that only training has."""
        if (self.devices, self.nodes) != ((1,), (1,)):
            raise ValueError("mode: inference: a network runs on one device; "
                             "write devices: 1 and nodes: 1, or leave them out")
        if self.phases:
            raise ValueError("phases: looks into a training step; leave it out, "
                             "or write mode: training")

    def _refuse_many(self) -> None:
        """Raise ValueError for more combinations than anyone waits for."""
        keys = ("frameworks", "devices", "nodes", "scaling", "strategies", "threads")
        each = math.prod(len(set(getattr(self, key))) for key in keys)
        count = sum(each * math.prod(len(set(getattr(choice, key) or getattr(self, key))) or 3
                                     for key in ("batches", "precisions", "tunings", "data"))
                    for choice in self.networks.values())
        if count > MOST_TRIALS:
            raise ValueError(f"{count:,} combinations, at most {MOST_TRIALS:,} are planned: "
                             "shorten the lists")


def load_suite(path: Path, overrides: list[str] | None = None) -> Suite:
    """Read a suite and apply `key=value` overrides: YAML values, commas, dots into mappings.

    `networks=fcn5,resnet56` keeps what the suite says of those networks. Raises WrongUse.
    """
    data = read_yaml(path)
    for override in overrides or []:
        key, equals, _ = override.partition("=")
        if not equals:
            raise WrongUse(f"override '{brief(override, 60)}': write key=value, "
                           "for example devices=1,2")
        _override(data, key.strip(), _value(override))
    return validate(data, Suite, short(path))


def _override(data: dict[str, Any], key: str, value: Any) -> None:
    """Set one key, in either spelling. A value for all networks replaces that of each."""
    *parents, last = key.split(".")
    for parent in parents:
        if data.get(parent) is None:
            data[parent] = {}
        names = [data[parent]] if isinstance(data[parent], str) else data[parent]
        # A list of names, as `_write_out` takes it.
        if SHORTHANDS.get(parent, parent) == "networks" and isinstance(names, list):
            data[parent] = {str(name): None for name in names}
        data = data[parent]
        if not isinstance(data, dict):
            raise WrongUse(f"override '{key}': '{parent}' is not a mapping, "
                           "so nothing below it can be set")
    meant = SHORTHANDS.get(last, last)
    each = data.get("networks", data.get("network"))
    if not parents and isinstance(each, dict):
        if meant == "networks" and not isinstance(value, dict):
            names = value if isinstance(value, list) else [value]
            if any(isinstance(name, dict | list) for name in names):
                raise WrongUse(f"override '{key}': write names, or one mapping from names")
            value = {name: each.get(name) for name in names}
        for choice in each.values():
            if isinstance(choice, dict):
                _drop(choice, meant)
    _drop(data, meant)
    data[last] = value


def _drop(data: dict[str, Any], key: str) -> None:
    for spelling in [spelling for spelling in data if SHORTHANDS.get(spelling, spelling) == key]:
        del data[spelling]


def _value(override: str) -> Any:
    text = override.partition("=")[2]
    try:
        several = "," in text and not text.lstrip().startswith(("[", "{"))
        return plain_yaml.parse(f"[{text}]" if several else text)
    except plain_yaml.NotPlain as error:
        raise WrongUse(f"override '{brief(override, 60)}': its value is not YAML "
                       f"({brief(str(error), 150)}); write one value, or several with one "
                       "comma between two, as in devices=1,2") from None


def _remedy(model: type[BaseModel], key: str) -> str:
    """Return what to write for a key that has no value: its default, as YAML."""
    field = model.model_fields.get(key)
    default = field.get_default(call_default_factory=True) if field else None
    if not default or isinstance(default, dict | BaseModel):
        return "write one, or leave the key out"
    plain = list(default) if isinstance(default, tuple) else default
    shown = yaml.safe_dump(plain, default_flow_style=True).split("\n")[0]
    return f"write one, as in {key}: {shown}, or leave the key out"


def _lists(model: type[BaseModel], data: Any) -> Any:
    """Turn one value into a list of one wherever the model wants a list."""
    if not isinstance(data, dict):
        return data
    written: dict[str, Any] = {}
    for spelling, value in data.items():
        key = SHORTHANDS.get(spelling) or spelling
        if key in written:
            raise ValueError(f"{spelling}: {key} is written twice; "
                             "a key and its shorthand are the same")
        field = model.model_fields.get(key)
        wants_list = field is not None and str(field.annotation).startswith("tuple")
        written[key] = [value] if wants_list and not isinstance(value, list | tuple) else value
    return written
