"""A suite: what to measure, read from YAML with `key=value` overrides and checked whole.

Every key has a default, and below it a docstring that the documentation's page of suite keys shows.
`harness.plan.planner` turns a suite into trials.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, model_validator

import networks
from harness.data import data_sets
from harness.environments import recipes as frameworks
from harness.errors import WrongUse
from harness.plan import spelling
from harness.plan.parts import (
    LONGEST_WINDOW,
    PERCENTILES,
    Check,
    Devices,
    Jobs,
    Limits,
    Mode,
    NetworkChoice,
    Positive,
    PositiveInt,
    Precision,
    Repeats,
    Scaling,
    Scenario,
    Seconds,
    Skip,
    Threads,
    Tuning,
    Until,
    WholeNumber,
)
from harness.validation import Strict, did_you_mean, read_yaml, short, validate

MOST_TRIALS = 5000
# Keys of the scenario server.
OF_SERVER = ("latency_bound_seconds", "latency_percentile")


class Suite(Strict):
    """What to measure. Unknown keys are errors.

    One value may stand for a list of one, and `batch`, `network`, `framework`, `precision`,
    `tuning`, `strategy` and `scenario` for the keys that are their plural. The command line
    overrides keys: `dlbench run configs/smoke.yaml devices=1,2 batch=64 check.steps=5`.
    """

    title: Annotated[str, Field(max_length=200)] = ""
    """The report's title."""
    mode: Mode = "training"
    """inference: run trained networks and keep the time of every call."""
    until: Until | None = None
    """Train to a test accuracy, as in {target: 0.9}, one seed a process."""
    scenarios: tuple[Scenario, ...] = ()
    """In inference: MLPerf's scenarios by its LoadGen, for window_seconds times windows each.
    server: the highest rate of random requests that keeps latency_bound_seconds, in five tries."""
    latency_bound_seconds: Seconds | None = None
    """Of the scenario server: from a request's arrival to its answer."""
    latency_percentile: Positive = 99
    """Of the scenario server: so many of a hundred requests keep the bound; 50, 90, 95, 97, 99 or
    99.9. 99 needs 459 requests a try."""
    weights: dict[str, Path] = Field(default_factory=dict)
    """In inference: files of trained weights as in {lenet5: FILE.npz}, seen from the suite's file.
    Other networks have drawn weights."""
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
    """Processes that get ready at a time, as far as a GPU's memory reaches; timed one by one."""
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
        data = spelling.lists(cls, data)
        for key, value in data.items():
            if value == [None]:
                raise ValueError(f"{key}: there is no value; {spelling.remedy(cls, key)}")
        if "server" in data:
            raise ValueError("server: is a scenario; write scenarios: server and "
                             "latency_bound_seconds: 0.1")
        until = data.get("until")
        if isinstance(until, dict):
            seeds = until.get("seeds", Until.model_fields["seeds"].default)
            if data.setdefault("processes", seeds) != seeds:
                raise ValueError(f"processes: {data['processes']} of them for {seeds} seeds; each "
                                 "is one seed: write until.seeds, and leave processes out")
        chosen = data.get("networks", networks.names(large=False))
        if chosen is None:
            raise ValueError(f"networks: there is no value; {spelling.remedy(cls, 'networks')}")
        if isinstance(chosen, str):
            chosen = [chosen]
        if isinstance(chosen, list):
            if not all(isinstance(name, str) for name in chosen):
                raise ValueError("networks: write a list of names, "
                                 "or a mapping as in fcn5: {batch: 512}")
            chosen = dict.fromkeys(chosen)
        if isinstance(chosen, dict):
            data["networks"] = {name: spelling.lists(NetworkChoice, choice or {})
                                for name, choice in chosen.items()}
        return data

    @field_serializer("weights")
    def _name_files(self, weights: dict[str, Path]) -> dict[str, str]:
        """Name files without their folder: records hold no place of this machine."""
        return {network: file.name for network, file in weights.items()}

    @model_validator(mode="after")
    def _fit_together(self) -> "Suite":
        every = [*networks.names(), *networks.names(small=True)]
        for name in self.networks:
            _know("networks", "network", name, every, networks.names())
        for key in ("frameworks", "networks", "devices", "nodes", "scaling", "strategies",
                    "threads", "precisions", "tunings", "data"):
            if not getattr(self, key):
                raise ValueError(f"{key}: the list is empty; {spelling.remedy(type(self), key)}")
        for skip in self.skip:
            for key, names in (("network", every), ("framework", frameworks.names()),
                               ("strategy", frameworks.strategies())):
                if (name := getattr(skip, key)) is not None:
                    _know("skip", key, name, names)
        self._know_the_strategies()
        if self.until:
            self._refuse_beside_until()
        self._refuse_of_other_mode()
        if self.interval is not None and not 3 <= self.processes <= self.processes_most:
            raise ValueError("interval: needs 3 processes or more, and no more than "
                             f"processes_most ({self.processes_most})")
        for name in self.weights:
            _know("weights", "network", name, list(self.networks))
        for spec in self.interpreters:
            try:
                frameworks.parse(spec)
            except WrongUse as error:
                raise ValueError(f"interpreters: {error}") from None
        self._refuse_many()
        known = ("auto", "device", "host", "real", "files", *data_sets.names())
        of_networks = [each for choice in self.networks.values() for each in choice.data]
        for data in (*self.data, *of_networks):
            _know("data", "data", data, known)
        return self

    def _know_the_strategies(self) -> None:
        """Raise ValueError for a strategy that no framework has, or that has one device only."""
        chosen = [strategy for strategy in self.strategies if strategy != "default"]
        offered = ["default", *frameworks.strategies()] if chosen else []
        for strategy in chosen:
            _know("strategies", "strategy", strategy, offered)
        if chosen and max(self.devices) * max(self.nodes) == 1:
            raise ValueError(f"strategies: {', '.join(chosen)}: one device has nothing to "
                             "aggregate; write devices of 2 or more, or leave strategies out")

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

    def _refuse_of_other_mode(self) -> None:
        """Raise ValueError for keys that only inference, or only training, has."""
        if self.mode == "training":
            for key in ("scenarios", *OF_SERVER):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}: requests are answered by trained networks; "
                                     "write mode: inference")
            if self.weights:
                raise ValueError("weights: training begins with drawn weights; write "
                                 "mode: inference, or leave the key out")
            return
        self._bound_the_server()
        if (self.devices, self.nodes) != ((1,), (1,)):
            raise ValueError("mode: inference: a network runs on one device; "
                             "write devices: 1 and nodes: 1, or leave them out")
        if self.phases:
            raise ValueError("phases: looks into a training step; leave it out, "
                             "or write mode: training")

    def _bound_the_server(self) -> None:
        """Raise ValueError for a server without a bound, and for a bound without a server."""
        if len(set(self.scenarios)) < len(self.scenarios):
            raise ValueError(f"scenarios: {', '.join(self.scenarios)}: write each once")
        if self.latency_percentile not in PERCENTILES:
            raise ValueError(f"latency_percentile: is {self.latency_percentile:g}; write one that "
                             f"LoadGen gives: {', '.join(map(str, PERCENTILES))}")
        if "server" in self.scenarios:
            if self.latency_bound_seconds is None:
                raise ValueError("scenarios: server needs the latency that its requests must keep; "
                                 "write latency_bound_seconds: 0.1")
            return
        for key in OF_SERVER:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: is of the scenario server; write scenarios: server, "
                                 f"or leave {key} out")

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


def _know(key: str, kind: str, name: str, known: Sequence[str],
          suggested: Sequence[str] = ()) -> None:
    """Raise ValueError for a name that is not `known`; the message lists those, or `suggested`."""
    if name not in known:
        raise ValueError(f"{key}: unknown {kind} {name}{did_you_mean(name, suggested or known)}")


def load_suite(path: Path, overrides: list[str] | None = None) -> Suite:
    """Read a suite and apply `key=value` overrides: YAML values, commas, dots into mappings.

    `networks=fcn5,resnet56` keeps what the suite says of those networks. Raises WrongUse.
    """
    data = read_yaml(path)
    spelling.override(data, overrides or [])
    suite = validate(data, Suite, short(path))
    return suite.model_copy(update={
        "weights": {name: path.parent / file for name, file in suite.weights.items()}})
