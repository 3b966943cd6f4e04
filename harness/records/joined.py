"""Joins the campaigns of several nodes into one, in which a node is what intervals are drawn from.

Each node ran the whole suite and proved its own processes. The joined campaign holds all their
rows; `processes.csv` names the node of each.
"""

import csv
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.records import packed, reader
from analysis.records.columns import TABLES
from analysis.records.reader import Campaign
from harness.errors import WrongUse
from harness.records import lock
from harness.records.table import text_of

# The keys of campaign.json that must be equal in all parts.
SAME = ("schema", "suite", "seed", "source_hash", "comparison", "environments", "data_sets",
        "weights", "variables")
# Tables that have rows for each trial and not for each process: those of one part are enough.
OF_A_TRIAL = ("kernels", "operators")
BESIDE = ("logs", "weights")  # folders with files of processes
COLLECTED = ("concerns", "dirty", "resumed", "shortages")

Rows = list[dict[str, str]]


def join(folders: Sequence[Path], out: Path) -> None:
    """Write the campaigns of `folders` as one into `out`; a folder's name is its node's.

    Raises WrongUse if they are not parts of one measurement, and BadRecords.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise WrongUse(f"join {' '.join(map(str, folders))}: name two folders or more, each called "
                       "after its node")
    _refuse_other(out)
    parts = [reader.read(folder) for folder in folders]
    for name, part in zip(names[1:], parts[1:], strict=True):
        _refuse_unlike(names[0], parts[0], name, part)
    stride = max(int(part.processes["process"].max()) + 1 if len(part.processes) else 1
                 for part in parts)
    with lock.held(out):
        for table in TABLES:
            columns, rows = _table(table, folders, names, stride)
            if columns:
                (out / f"{table}.csv").write_text(text_of(columns, rows), encoding="utf-8")
        for folder, name in zip(folders, names, strict=True):
            for beside in BESIDE:
                if (folder / beside).is_dir():
                    shutil.copytree(folder / beside, out / beside / name, dirs_exist_ok=True)
        page = json.dumps(_page(names, parts, out.name, stride), indent=1)
        (out / "campaign.json").write_text(page, encoding="utf-8")


def _refuse_other(out: Path) -> None:
    file = out / "campaign.json"
    if file.exists() and "joined" not in json.loads(file.read_text(encoding="utf-8")):
        raise WrongUse(f"{out} holds a campaign already; name another folder with --out")


def _refuse_unlike(first: str, begun: Campaign, name: str, part: Campaign) -> None:
    """Raise WrongUse for the first thing that `part` did otherwise."""
    for campaign, node in ((begun, first), (part, name)):
        if "joined" in campaign.meta:
            raise WrongUse(f"{campaign.folder}: is joined already; name the folders of its nodes")
        if not campaign.proves_each_process:
            raise WrongUse(f"{node}: an earlier release measured it; measure it again")
    differ = [key for key in SAME if begun.meta.get(key) != part.meta.get(key)]
    planned = [[{**trial, "reason": ""} for trial in each.trials] for each in (begun, part)]
    differ += [] if planned[0] == planned[1] else ["trials"]
    here, there = (_hardware(each.meta["machine"]) for each in (begun, part))
    differ += [f"machine.{key}" for key in here if here[key] != there[key]]
    if differ:
        raise WrongUse(f"{part.folder / 'campaign.json'}: {differ[0]} is not that of {first}: "
                       "join what one suite, one dlbench and nodes of one kind have measured")


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    gpus = machine.get("gpus") or ()
    return {"cpu": (machine.get("cpu") or {}).get("model"),
            "gpus": [(gpu.get("name"), gpu.get("driver")) for gpu in gpus]}


def _page(names: Sequence[str], parts: Sequence[Campaign], name: str, stride: int
          ) -> dict[str, Any]:
    """Return the first part's page with what the others add; processes are planned on each node."""
    pages = [part.meta for part in parts]
    ends = [page["finished"] for page in pages]
    collected = {key: [f"{node}: {text}" for node, page in zip(names, pages, strict=True)
                       for text in page.get(key) or ()] for key in COLLECTED}
    trials = [{**trial, "processes_planned": trial["processes_planned"] * len(parts)}
              for trial in pages[0]["trials"]]
    return {
        **pages[0], **{key: texts for key, texts in collected.items() if texts}, "name": name,
        "started": min(page["started"] for page in pages),
        "finished": None if None in ends else max(ends), "trials": trials,
        "peaks": [peak for page in pages for peak in page.get("peaks") or ()],
        "joined": {"nodes": list(names), "stride": stride,
                   "machines": {node: page["machine"]
                                for node, page in zip(names, pages, strict=True)}}}


def _table(table: str, folders: Sequence[Path], names: Sequence[str], stride: int
           ) -> tuple[list[str], Rows]:
    """Collect a table's columns and rows; processes of node k count from k times `stride`."""
    columns: list[str] = []
    joined: Rows = []
    order = 0
    for number, (folder, node) in enumerate(zip(folders, names, strict=True)):
        header, rows = _read(folder / f"{table}.csv")
        columns = columns or header
        if header and set(header) | {"node"} != set(columns) | {"node"}:
            raise WrongUse(f"{folder / table}.csv: has other columns than that of {names[0]}; "
                           "measure all nodes with one dlbench")
        if table in OF_A_TRIAL:
            known = {row["trial"] for row in joined}
            joined += [row for row in rows if row["trial"] not in known]
            continue
        for row in rows:
            row["process"] = str(int(row["process"]) + number * stride)
        if table == "processes":
            for row in rows:
                row |= {"order": str(int(row["order"]) + order), "node": node,
                        "log": row["log"].replace("logs/", f"logs/{node}/", 1)}
            order += len(rows)
            columns = list(dict.fromkeys([*columns, "node"]))
        joined += rows
    return columns, joined


def _read(file: Path) -> tuple[list[str], Rows]:
    if not packed.find(file).is_file():
        return [], []
    found = csv.DictReader(io.StringIO(packed.read_text(file), newline=""))
    return list(found.fieldnames or ()), list(found)
