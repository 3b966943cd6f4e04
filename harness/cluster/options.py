"""Where `--on` sends a campaign: an engine and its options, in words or in a small YAML file."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from harness import plain_yaml
from harness.errors import WrongUse, brief
from harness.validation import Strict, load_yaml, validate

MOST_NODES, MOST_GPUS, LONGEST_MINUTES = 4096, 64, 30 * 1440
WORDS = "--on"
# Options that dlbench sets itself, because records and resuming depend on them.
OURS = ("chdir", "error", "exclusive", "nodes", "ntasks-per-node", "open-mode", "output",
        "parsable", "requeue", "signal", "time", "wait", "wrap")


def _minutes(value: Any) -> Any:
    """Read Slurm's own forms: minutes, H:M:S, D-H, D-H:M and D-H:M:S."""
    found = re.fullmatch(r"(?:(\d{1,3})-)?(\d{1,5})(?::(\d\d))?(?::(\d\d))?", str(value).strip())
    # 2:00 is refused: Slurm reads it as minutes and seconds, a person as hours and minutes.
    if not found or (found[1] is None and found[3] is not None and found[4] is None):
        raise ValueError(f"write minutes, or hours:minutes:seconds as in 2:00:00, "
                         f"is {brief(repr(value), 60)}")
    days, first, minutes, seconds = (int(part or 0) for part in found.groups())
    if found[1] is None and found[3] is None:
        return first
    return days * 1440 + first * 60 + minutes + (seconds > 0)


def _plain(name: str) -> str:
    if not re.fullmatch(r"[\w.@%+-]{1,100}", name):
        raise ValueError(f"{brief(repr(name), 60)} is no name that Slurm takes")
    return name


Name = Annotated[str, Field(min_length=1), BeforeValidator(lambda value: _plain(str(value)))]
Minutes = Annotated[int, Field(ge=1, le=LONGEST_MINUTES), BeforeValidator(_minutes)]


def _options(given: Any) -> Any:
    """Check the names of extra options; a value becomes one line of text."""
    if not isinstance(given, dict):
        raise ValueError("write a mapping, as in {constraint: h200, qos: high}")
    for name, value in given.items():
        if not re.fullmatch(r"[a-z][a-z-]*", str(name)):
            raise ValueError(f"{brief(repr(name), 60)}: write the long name of an option of "
                             "sbatch without its dashes, as in constraint")
        if name in OURS:
            raise ValueError(f"{name}: dlbench sets it; leave it out")
        if isinstance(value, dict | list) or not str(value).isprintable():
            raise ValueError(f"{name}: write one value, or true for an option without any")
    return {str(name): value if value is True else str(value) for name, value in given.items()}


class Cluster(Strict):
    """One allocation of a cluster. It holds one campaign, and its nodes are not shared."""

    engine: Literal["slurm"] = "slurm"
    """The cluster's engine."""
    partition: Name | None = None
    """Default: the cluster's."""
    account: Name | None = None
    """Who pays. Default: yours."""
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    """Nodes of the allocation. The first one drives."""
    repeat: bool = False
    """true: each node runs the whole campaign, and intervals are over nodes. Otherwise the nodes
    train together."""
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] = 0
    """GPUs of each node."""
    time: Minutes = 60
    """Minutes, or 2:00:00. A campaign that needs longer goes on in the next turn by itself."""
    options: Annotated[dict[str, str | bool], BeforeValidator(_options)] = {}
    """Other options of sbatch by their long names, as in {constraint: h200}."""
    setup: tuple[str, ...] = ()
    """Lines of shell before dlbench starts, as in module load python."""


def folder_of_node(out: Path, node: str) -> Path:
    """Return where a node's own records lie: beside the joined ones, which are hashed."""
    return out.with_name(f"{out.name}.nodes") / node


def folders_of_nodes(out: Path) -> list[Path]:
    """Return the folders of the nodes that have repeated a campaign so far."""
    return sorted(file.parent for file in folder_of_node(out, "").glob("*/campaign.json"))


def parse(text: str) -> Cluster:
    """Read `--on`: `slurm`, `slurm,partition=gpu,time=2:00:00`, or a YAML file. Raises WrongUse."""
    cluster = _parse(text)
    if cluster.repeat and cluster.nodes == 1:
        raise WrongUse(f"{WORDS} {brief(text, 100)}: repeat: needs several nodes, as in "
                       "slurm,nodes=3,repeat=true")
    return cluster


def _parse(text: str) -> Cluster:
    if text.endswith((".yaml", ".yml")):
        return load_yaml(Path(text), Cluster)
    engine, *words = [word.strip() for word in text.split(",")]
    data: dict[str, Any] = {"engine": engine}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise WrongUse(f"{WORDS} {brief(text, 100)}: '{brief(word, 60)}': write key=value, as "
                           "in slurm,partition=gpu,time=2:00:00, or name a YAML file")
        outer, dot, inner = key.partition(".")
        if dot and outer == "options":
            data.setdefault("options", {})[inner] = value
        else:
            data[key] = _number(value)
    return validate(data, Cluster, WORDS)


def _number(value: str) -> Any:
    try:
        return plain_yaml.parse(value)
    except plain_yaml.NotPlain:
        return value
