"""`dlbench doctor`: the machine, what would spoil its numbers, its frameworks and data.

`examine` returns values for JSON, `show` prints them. Nothing is built or fetched.
"""

from dataclasses import asdict
from typing import Any, get_args

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from harness.data import data_sets
from harness.environments import interpreters, recipes, store
from harness.errors import WrongUse
from harness.machine import hardware

DEVICES: tuple[recipes.Device, ...] = get_args(recipes.Device)


def examine() -> dict[str, Any]:
    """Describe the machine, its concerns, each framework's default release and each data set.

    Candidate interpreters are run and data sets are checked, so this takes some seconds.
    """
    described = hardware.describe()
    pythons: dict[tuple[str, ...], dict[str, str | None]] = {}
    return {
        "machine": described,
        "concerns": [asdict(concern) for concern in hardware.concerns(described)],
        "frameworks": [_framework(name, pythons) for name in recipes.names()],
        "data": [_data_set(name) for name in data_sets.names()],
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Print what `examine` found, the machine first; built for 80 columns."""
    for line in _machine_lines(found["machine"]):
        console.print(escape(line), highlight=False)
    console.print()
    if not found["concerns"]:
        console.print("[green]Nothing here makes numbers untrustworthy.")
    for concern in found["concerns"]:
        console.print(f"[yellow]{escape(concern['text'])}", highlight=False)
        console.print(Padding(escape(concern["remedy"]), (0, 0, 0, 4)), highlight=False)
    console.print()
    kinds = [kind for kind in DEVICES if kind != "cuda" or found["machine"]["gpus"]]
    console.print(_framework_table(found["frameworks"], kinds))
    for line in _remarks(found["frameworks"], kinds):
        console.print(Padding(escape(line), (0, 0, 0, 2)), highlight=False)
    console.print()
    for each in found["data"]:
        console.print(f"[bold]{escape(each['name'])}[/bold]: "
                      f"{escape(each['text'] or each['reason'])}", highlight=False)


def _framework(name: str, pythons: dict[tuple[str, ...], dict[str, str | None]]
               ) -> dict[str, Any]:
    """Describe a framework's default release. `pythons` caches the interpreters found."""
    try:
        framework = recipes.load(name)
    # One wrong file must not hide the other frameworks.
    except WrongUse as error:
        return {"name": name, "release": None, "python": None, "interpreter": None,
                "reason": str(error), "devices": {}}
    recipe = framework.recipe(framework.default)
    wanted = tuple(recipe.python)
    if wanted not in pythons:
        pythons[wanted] = _interpreter(wanted)
    built = {kind: None if kind in recipe.unsupported else store.find(name, framework.default, kind)
             for kind in DEVICES}
    devices = {kind: {"supported": kind not in recipe.unsupported,
                      "reason": recipe.unsupported.get(kind),
                      "environment": environment and str(environment.interpreter)}
               for kind, environment in built.items()}
    used = [{"python": each.python.rpartition(".")[0]} for each in built.values() if each]
    return {"name": name, "release": framework.default, **pythons[wanted], **(used or [{}])[0],
            "devices": devices}


def _interpreter(versions: tuple[str, ...]) -> dict[str, str | None]:
    try:
        found = interpreters.find(versions)
    except WrongUse as error:
        return {"python": recipes.spell(versions), "interpreter": None, "reason": str(error)}
    return {"python": found.version, "interpreter": str(found.path), "reason": None}


def _data_set(name: str) -> dict[str, str | None]:
    try:
        source = data_sets.available(name)
    except WrongUse as error:
        return {"name": name, "text": None, "reason": str(error)}
    if source is None:
        return {"name": name, "text": None, "reason": f"not here: dlbench data fetch {name}"}
    return {"name": name, "text": source.text, "reason": None}


def _machine_lines(found: dict[str, Any]) -> list[str]:
    cpu, memory, system, checkout = (found[key]
                                     for key in ("cpu", "memory", "system", "checkout"))
    allowed = "" if cpu["allowed"] == cpu["logical"] else f", {cpu['allowed']} allowed here"
    lines = [
        f"{cpu['model']}: {cpu['physical']} cores, {cpu['logical']} processors{allowed}",
        f"{memory['available_bytes'] / 2**30:.1f} of {memory['total_bytes'] / 2**30:.1f} GiB "
        f"memory free, load average {found['load_average'][0]:.1f}",
        f"{system['os']}, Linux {system['kernel']}, {system['architecture']}, "
        f"Python {system['python']}",
        *(_node_line(node, found["gpus"]) for node in cpu["numa"] if len(cpu["numa"]) > 1),
        *(line for gpu in found["gpus"] for line in _gpu_lines(gpu)),
        *_link_lines(found["links"]),
    ]
    if not found["gpus"]:
        lines.append("no NVIDIA GPU")
    if checkout["commit"]:
        changes = " with changes that are not committed" if checkout["dirty"] else ""
        lines.append(f"dlbench commit {checkout['commit'][:12]}{changes}")
    return lines


def _node_line(node: dict[str, Any], gpus: list[dict[str, Any]]) -> str:
    near = "".join(f", GPU {gpu['index']}" for gpu in gpus if gpu["numa_node"] == node["node"])
    return f"memory node {node['node']}: processors {node['processors']}{near}"


def _gpu_lines(gpu: dict[str, Any]) -> list[str]:
    """Two lines: what it is, and how it is set; what it cannot tell is left out."""
    memory = "" if gpu["memory_bytes"] is None else f", {gpu['memory_bytes'] / 2**30:.0f} GiB"
    hidden = "" if gpu["cuda_index"] is not None else ", hidden by CUDA_VISIBLE_DEVICES"
    texts = {"sm_mhz": "{sm_mhz} of {sm_max_mhz} MHz",
             "power_limit_watts": "limit {power_limit_watts:g} W",
             "pcie_width": "PCIe {pcie_generation_max} x{pcie_width}",
             "nvlinks": "{nvlinks} NVLinks"}
    settings = [text.format(**gpu) for key, text in texts.items() if gpu[key]]
    modes = {"ECC": gpu["ecc"], "persistence": gpu["persistence"], "MIG": gpu["mig"]}
    settings += [f"{name} {'on' if mode else 'off'}"
                 for name, mode in modes.items() if mode is not None]
    return [f"GPU {gpu['index']}: {gpu['name']}{memory}, driver {gpu['driver']}, "
            f"CUDA {gpu['cuda']}{hidden}", f"  {', '.join(settings)}"]


def _link_lines(links: list[dict[str, Any]]) -> list[str]:
    """Say what lies between GPUs, the pairs of one path together."""
    lines = []
    for path in dict.fromkeys(link["path"] for link in links):
        pairs = ["-".join(map(str, link["gpus"])) for link in links if link["path"] == path]
        which = "all pairs of GPUs" if len(pairs) == len(links) else f"GPUs {', '.join(pairs)}"
        lines.append(f"between {which}: {path or 'not known'}")
    return lines


def _framework_table(found: list[dict[str, Any]], kinds: list[recipes.Device]) -> Table:
    table = Table("framework", "release", "Python", *kinds)
    for each in found:
        cells = [_state(each, kind) for kind in kinds]
        release = escape(each["release"] or "-")
        table.add_row(escape(each["name"]), release, each["python"] or "-", *cells)
    return table


def _state(found: dict[str, Any], kind: str) -> str:
    device = found["devices"].get(kind)
    if device is None:
        return "[red]its file is wrong"
    if not device["supported"]:
        return "[yellow]unsupported"
    if device["environment"]:
        return "[green]built"
    return "not built" if found["interpreter"] else f"[red]needs Python {found['python']}"


def _remarks(found: list[dict[str, Any]], kinds: list[recipes.Device]) -> list[str]:
    """List what the table's cells have no room for; a missing Python is named once."""
    devices = [(each, kind, each["devices"][kind])
               for each in found for kind in kinds if each["devices"]]
    absent = [each for each, _, device in devices
              if device["supported"] and not device["environment"]]
    ready = dict.fromkeys(each["name"] for each in absent if each["interpreter"])
    return [
        *(each["reason"] for each in found if not each["devices"]),
        *(f"{each['name']} on {kind}: {device['reason']}"
          for each, kind, device in devices if not device["supported"]),
        *dict.fromkeys(each["reason"] for each in absent if not each["interpreter"]),
        *(["dlbench run builds what it needs; dlbench env build NAME builds now"] if ready else []),
    ]
