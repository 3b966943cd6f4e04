"""The first pages of records, campaign.json and study.json: how they are read, and their model.

The model holds what readers and reports use; other keys may be anything. Readers go on with the
page as it was written.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.records import packed
from analysis.records.text import BadRecords

Count = Annotated[int, Field(ge=0, le=2**60)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Word = Annotated[str, Field(max_length=1000)]
Words = list[Word]


class Part(BaseModel):
    """A part of a page; further keys may be anything."""

    model_config = ConfigDict(strict=True, extra="allow")


class PlannedTrial(Part):
    trial: Word
    framework: Word
    release: Word
    network: Word
    batch: Count
    devices: Annotated[int, Field(ge=1, le=2**20)]
    device_kind: Word
    threads: Count
    precision: Word
    tuning: Word
    data: Word
    strategy: Word
    global_batch: Count
    parameters: Count
    flops_per_step: Count
    processes_planned: Annotated[int, Field(ge=0, le=2**31)]
    status: Word
    reason: str
    side: Word = ""
    ranks: Annotated[int, Field(ge=1)] = 1
    nodes: Annotated[int, Field(ge=1)] = 1
    learning_rate: float = 0.0
    dropout: bool = False
    mode: Word = "training"


class Suite(Part):
    title: Word = ""
    processes: Annotated[int, Field(ge=0, le=2**31)] | None = None
    processes_most: Annotated[int, Field(ge=0, le=2**31)] | None = None
    windows: Annotated[int, Field(ge=0, le=2**31)] | None = None
    window_seconds: Amount | None = None
    prepare_jobs: Annotated[int, Field(ge=1, le=2**20)] = 1
    seed: int | None = None


class Processor(Part):
    model: Word | None = None
    allowed: Annotated[int, Field(ge=1, le=2**31)] | None = None


class Gpu(Part):
    name: Word | None = None
    driver: Word | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None


class Memory(Part):
    total_bytes: Count | None = None


class System(Part):
    os: Word | None = None
    kernel: Word | None = None


class Machine(Part):
    cpu: Processor | None = None
    memory: Memory | None = None
    system: System | None = None
    gpus: list[Gpu] | None = None


class Lock(Part):
    """The lock of an environment."""

    framework: Word | None = None
    release: Word
    device: Word | None = None
    python: Word | None
    packages: list[Word] | None = None


class Peak(Part):
    device_kind: Word
    threads: Count
    precision: Word
    framework: Word
    flops: Positive | None
    size: Count | None = None
    when: Word = ""
    reason: str = ""
    bytes_per_second: Positive | None = None


class Telemetry(Part):
    not_measured: Words = []


class Comparison(Part):
    a: Word = ""
    b: Word = ""
    repeats: Annotated[int, Field(ge=1, le=2**20)] = 1


class TrainedWeights(Part):
    """The file that a suite names for a network."""

    file: Word
    sha256: Word


class Joined(Part):
    """The nodes that each ran the campaign; node k numbers its processes from k strides on."""

    nodes: Annotated[Words, Field(min_length=1)]
    stride: Annotated[int, Field(ge=1, le=2**31)]


class Origin(Part):
    """Which source measured."""

    git_commit: Word | None = None
    source_hash: Word | None = None
    resumed: Words | None = None


class Page(Origin):
    """What first pages have in common."""

    dlbench: Word | None = None
    concerns: Words | None = None
    dirty: Words | None = None
    shortages: Words | None = None
    variables: dict[Word, Word] | None = None
    telemetry: Telemetry | None = None


class CampaignPage(Page):
    name: Word
    started: Word
    finished: Word | None
    machine: Machine
    environments: dict[Word, Lock]
    suite: Suite
    trials: list[PlannedTrial]
    seed: int | None = None
    suite_file: str | None = None
    peaks: list[Peak] | None = None
    comparison: Comparison | None = None
    joined: Joined | None = None
    data_sets: dict[Word, Word] | None = None
    weights: dict[Word, TrainedWeights] | None = None


class Workers(Part):
    device_name: Word | None = None
    release: Word | None = None


class StudyPage(Page):
    study: Word
    name: Word = ""
    started: Word = ""
    finished: Word | None = None
    machine: Machine | None = None
    environments: dict[Word, Lock] | None = None
    settings: dict[str, Any] = {}
    workers: dict[Word, Workers] = {}
    recorded: Words = []


class Effort(Part):
    processes: Count
    windows: Count
    window_seconds: Amount
    once_seconds: Amount


class PointsPage(StudyPage):
    """That of a study of points and candidates: any but aggregation."""

    effort: Effort
    device_kind: Word
    threads: Count


def read_page(file: Path, wanted: str) -> dict[str, Any]:
    """Read a file that holds one JSON object. Raises BadRecords; `wanted` says what to name."""
    try:
        text = packed.read_text(file)
    except FileNotFoundError:
        raise BadRecords(f"{file}: no such file; {wanted}") from None
    try:
        page = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRecords(f"{file}: line {error.lineno}: not JSON ({error.msg}); "
                         "restore the file from a copy") from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or lists in lists.
        raise BadRecords(f"{file}: not JSON that can be read ({error}); "
                         "restore the file from a copy") from None
    if not isinstance(page, dict):
        raise BadRecords(f"{file}: holds a {type(page).__name__}, not an object; "
                         "restore the file from a copy")
    return page


def read_first(file: Path, wanted: str, schema: int, model: type[Part]) -> dict[str, Any]:
    """Read the first page of records, of this `schema` and fit for `model`. Raises BadRecords."""
    page = read_page(file, wanted)
    if page.get("schema") != schema:
        raise BadRecords(f"{file}: schema {repr(page.get('schema'))[:80]}, this dlbench reads "
                         f"{schema}; use the dlbench that wrote it "
                         f"({str(page.get('dlbench', 'not recorded'))[:80]})")
    check_page(file, page, model)
    return page


def check_page(file: Path, page: Mapping[str, Any], model: type[Part]) -> None:
    """Raise BadRecords that names the first key of `page` whose value is not fit."""
    try:
        model.model_validate(page)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        remedy = "restore the file from a copy or run the suite again"
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}"
                      for part in fault["loc"])[1:]
        if fault["type"] == "missing":
            raise BadRecords(f"{file}: no key {key}; {remedy}") from None
        found = f"{fault['msg'][0].lower()}{fault['msg'][1:]}, is {repr(fault['input'])[:80]}"
        raise BadRecords(f"{file}: {key}: {found}; {remedy}") from None
