"""What a worker may answer: one model for each command. `reading` holds answers against them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from analysis.records.text import one_line

# Sums of a GPU's events, each a float32.
ROUNDED = 1e-3
# All processes of a machine share the clock; its readings differ by its resolution.
CLOCK_SECONDS = max(1e-6, time.get_clock_info("monotonic").resolution)
# Of a run of LoadGen: more do not fit into its time.
MOST_SAMPLES = 10**8


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a line of printable characters")
    return text


def _flat(text: Any) -> Any:
    return one_line(text) if isinstance(text, str) else text


Count = Annotated[int, Field(ge=0, le=2**50)]
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0)]  # inf where training broke down
Line = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Text = Annotated[str, BeforeValidator(_flat)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Window = Annotated[list[Moment], Field(min_length=2, max_length=2)]


@dataclass(frozen=True)
class Asked:
    """A command that was sent, and when the driver sent it by the clock that all share."""

    command: str
    arguments: Mapping[str, Any]
    sent: float
    clock: Callable[[], float] = time.monotonic


class Answer(BaseModel):
    """An answer that says nothing but that it is done."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="after")
    def _as_asked(self, info: ValidationInfo) -> "Answer":
        self.check(cast(Asked, info.context))
        return self

    def check(self, asked: Asked) -> None:
        """Raise ValueError if the fields do not fit what was asked, or one another."""


class Refusal(Answer):
    reason: Text


class Failure(Answer):
    kind: Literal["different", "out_of_memory", "crashed"]
    reason: Text


class Greeting(Answer):
    """A rank's first line, before any command."""

    rank: Annotated[int, Field(ge=0)]
    pid: Annotated[int, Field(ge=1, le=2**31)]


Version = Line | int | bool | None


class Hello(Answer):
    pid: Annotated[int, Field(ge=1, le=2**31)] | None = None
    python: Line = ""
    numpy: Line = ""
    keras: Line | None = None
    release: Line = ""
    device_name: Line = ""
    libraries: Annotated[dict[Line, Version | list[Line]], Field(max_length=200)] = {}


class Built(Answer):
    parameters: Count
    settings: Annotated[list[Text], Field(max_length=100)] = []
    arithmetic: Line = ""  # the precision that an engine says it computes in
    model_bytes: Count = 0  # of the file that an engine reads


class OpenedFiles(Answer):
    loader: Text


class Timed(Answer):
    steps: Count
    start: Moment
    stop: Moment

    def check(self, asked: Asked) -> None:
        _check_steps(self.steps, asked)
        _check_windows([[self.start, self.stop]], asked)


class Ran(Timed):
    loss: float  # of a run that diverged: nan or inf
    peak_memory_bytes: Count
    network_tx_bytes: Count | None = None  # where several nodes train


class Staged(Answer):
    """Of a pipeline's stage: the mean of a step's work, and of its span from first to last."""

    stage_seconds: Window

    def check(self, asked: Asked) -> None:
        busy, span = self.stage_seconds
        if not 0 < busy <= (1 + ROUNDED) * span:
            raise ValueError(f"stage_seconds: came {self.stage_seconds!r}, expected a part of its "
                             "span")


class Inferred(Timed):
    """As many calls as `steps`, one after another."""

    peak_memory_bytes: Count


class Played(Answer):
    """Calls, and the samples that they answered: as many as LoadGen asked for."""

    steps: Annotated[int, Field(ge=1)]
    samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
    start: Moment
    stop: Moment
    peak_memory_bytes: Count

    def check(self, asked: Asked) -> None:
        _check_windows([[self.start, self.stop]], asked)


class Rounding(Answer):
    errors: Annotated[list[Moment], Field(min_length=1, max_length=1000)]
    along: Annotated[list[Finite], Field(max_length=10_000)] = []


class Transferred(Timed):
    idle_seconds: Moment

    def check(self, asked: Asked) -> None:
        super().check(asked)
        if self.idle_seconds >= self.stop - self.start:
            raise ValueError(f"idle_seconds: came {self.idle_seconds!r}, expected less than the "
                             "window")


class BuiltPart(Answer):
    """A part of the step that was built and not run."""

    steps: Literal[0]


class Trained(Answer):
    losses: list[float]
    hidden: Text = ""  # why running statistics cannot be read
    first_seconds: Moment = 0.0  # that counts as building: see `Session.train`

    def check(self, asked: Asked) -> None:
        _check_count("losses", self.losses, asked.arguments["steps"])


class Apart(Answer):
    share: Share
    beyond: Share


class Copies(Answer):
    hashes: Annotated[list[Digest], Field(max_length=4096)]
    apart: dict[Line, Apart] = {}
    # Numbers of each parameter that each device holds, where none holds all.
    held: Annotated[list[dict[Line, Count]], Field(max_length=4096)] = []


class AllApart(Answer):
    apart: dict[Line, Apart]


class Windows(Answer):
    windows: list[Window]

    def check(self, asked: Asked) -> None:
        arguments = asked.arguments
        count = arguments["windows"] if "windows" in arguments else len(arguments["runs"])
        _check_count("windows", self.windows, count)
        _check_windows(self.windows, asked)


class Candidate(Answer):
    status: Literal["ok", "unsupported", "failed"]
    reason: Text = ""
    operations: Annotated[int, Field(ge=1, le=2**50)] | None = None
    error: float | None = None
    errors: Line | None = None
    workspace_bytes: Count | None = None
    rank: Count | None = None

    def check(self, asked: Asked) -> None:
        if self.status == "ok" and self.operations is None:
            raise ValueError("operations: missing")


class Placed(Answer):
    candidates: dict[Line, Candidate]


class Called(Answer):
    called: dict[Line, Annotated[list[Text], Field(max_length=1000)]]

    def check(self, asked: Asked) -> None:
        wanted = asked.arguments["names"]
        if list(self.called) != list(wanted):
            raise ValueError(f"called: came {list(self.called)}, expected {list(wanted)}")


class Opened(Answer):
    links: dict[Line, Text] = {}


class Spread(Answer):
    loss: float
    tensors: dict[Line, Annotated[list[float], Field(min_length=3, max_length=3)]]


class Masks(Answer):
    loss: Annotated[list[float], Field(min_length=2, max_length=2)]
    tensors: dict[Line, Annotated[list[float], Field(min_length=8, max_length=8)]]


class MaskedHead(Answer):
    mean: float
    deviation: float


class Activity(Answer):
    count: Count
    seconds: Moment


class Kernel(Activity):
    name: Text


class Copy(Activity):
    kind: Text
    bytes: Count


class Recorded(Answer):
    """The file that a worker writes of a few steps."""

    steps: Count
    wall_seconds: Moment

    def check(self, asked: Asked) -> None:
        _check_steps(self.steps, asked)


class Traced(Recorded):
    kernels: list[Kernel]
    copies: list[Copy]
    # Number, start, end.
    timeline: list[Annotated[list[Count], Field(min_length=3, max_length=3)]]
    busy_seconds: Moment
    span_seconds: Moment

    def check(self, asked: Asked) -> None:
        super().check(asked)
        rows = len(self.kernels) + len(self.copies)
        for number, start, end in self.timeline:
            if number >= rows or start > end:
                raise ValueError(f"timeline: came {[number, start, end]}, expected one of {rows} "
                                 "activities, its start and its end")


Name = Annotated[str | int, BeforeValidator(_flat)]


class Profiled(Recorded):
    # Operator, thread, start, end.
    spans: list[tuple[Text, Name, Finite, Finite]]


# Other commands answer nothing.
ANSWERS: Mapping[str, type[Answer]] = {
    "hello": Hello, "build": Built, "open_files": OpenedFiles,
    "run": Ran, "train": Trained, "copies": Copies, "apart": AllApart,
    "phase": Timed,
    "peak": Windows, "bandwidth": Windows, "time": Windows, "place": Placed, "open": Opened,
    "called": Called,
    "transfer": Transferred, "answer": Trained, "spread": Spread, "masks": Masks,
    "masked_head": MaskedHead, "infer": Inferred, "scenario": Played,
    "rounding": Rounding, "stages": Staged}


def _check_count(field: str, values: Sequence[Any], wanted: int) -> None:
    if len(values) != wanted:
        raise ValueError(f"{field}: came {len(values)}, expected {wanted}")


def _check_steps(steps: int, asked: Asked) -> None:
    wanted = asked.arguments["calls" if asked.command == "infer" else "steps"]
    if steps != wanted:
        raise ValueError(f"steps: came {steps}, expected {wanted}")


def _check_windows(windows: Sequence[Sequence[float]], asked: Asked) -> None:
    """Raise ValueError for a window that is not between the command and its answer."""
    earliest, latest = asked.sent - CLOCK_SECONDS, asked.clock() + CLOCK_SECONDS
    for start, stop in windows:
        if not earliest <= start < stop <= latest:
            raise ValueError(f"start and stop: came {start!r} and {stop!r}, expected one after the "
                             f"other between the command, {asked.sent!r}, and its answer, "
                             f"{asked.clock()!r}")
