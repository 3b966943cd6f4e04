"""Where the numbers of a page come from: machine, source, environments and suite."""

import json
from collections.abc import Mapping
from typing import Any

from analysis.display.page import Details, Facts, Notes, Part

Meta = Mapping[str, Any]  # what campaign.json or study.json holds


def parts(meta: Meta) -> list[Part]:
    """Show the facts, and folded the environments and the suite."""
    suite = [Details("The resolved suite", json.dumps(meta["suite"], indent=1), "`campaign.json`")]
    return [Facts(facts(meta)), *environments(meta, "campaign.json"),
            *(suite if meta.get("suite") else [])]


def environments(meta: Meta, file: str) -> list[Details]:
    """List the packages of each environment, folded; `file` holds them."""
    return [Details(f"Environment of {name}: {each['release']}, Python {each['python']}",
                    "\n".join(each.get("packages") or ()), f"`{file}`")
            for name, each in (meta.get("environments") or {}).items()]


def concerns(meta: Meta) -> list[Part]:
    """List what makes the machine's numbers less trustworthy."""
    return [Notes(meta["concerns"], warning=True)] if meta.get("concerns") else []


def facts(meta: Meta) -> list[tuple[str, str]]:
    """List what was run, on what and when, as (name, value); what was not recorded is left out."""
    machine = meta["machine"]
    cpu, memory, system = (machine.get(part) or {} for part in ("cpu", "memory", "system"))
    size = memory.get("total_bytes")
    processor = [cpu.get("model"), _count(cpu, "physical", "cores"),
                 _count(cpu, "logical", "hardware threads")]
    listed = [
        ("started", meta["started"]),
        ("finished", meta["finished"] or "not finished: interrupted, or still running"),
        ("suite", f"{meta.get('suite_file') or 'given as keys'}, seed {meta.get('seed')}"),
        ("dlbench", f"{meta.get('dlbench', '')} at {commit(meta)}"),
        ("source", f"SHA-256 {meta['source_hash']}" if meta.get("source_hash") else ""),
        ("trained weights", "; ".join(
            f"{network}: {each['file']}, SHA-256 {each['sha256']}"
            for network, each in (meta.get("weights") or {}).items())),
        ("processor", ", ".join(filter(None, processor))),
        ("memory", f"{size / 2**30:.3g} GiB" if size else ""),
        ("GPUs", ", ".join(str(gpu.get("name")) for gpu in machine.get("gpus") or ()) or "none"),
        ("not measured", "; ".join((meta.get("telemetry") or {}).get("not_measured", ()))),
        ("dirty", "; ".join(meta.get("dirty") or ())),
        ("resumed", "; ".join(meta.get("resumed") or ())),
        ("memory ran short", " ".join(map(_shortage, meta.get("shortages") or ()))),
        ("system", " ".join(str(system[key]) for key in ("os", "kernel", "architecture")
                            if system.get(key))),
    ]
    return [(name, value) for name, value in listed if value]


def commit(meta: Meta) -> str:
    """Name the commit that measured, and say what is uncertain about it."""
    return (f"commit {(meta.get('git_commit') or 'unknown')[:12]}"
            + (", stated and not checked" if meta.get("git_commit_stated") else "")
            + (", with uncommitted changes" if meta.get("git_dirty") else ""))


def _shortage(text: str) -> str:
    """Leave out of a shortage's text what the framework said, which may be long."""
    what, _, rest = text.partition(" (")
    _, _, consequence = rest.rpartition("from now on ")
    return f"{what}, and ran again alone. From then on {consequence}." if consequence else text


def _count(cpu: Meta, key: str, unit: str) -> str:
    return f"{cpu[key]} {unit}" if cpu.get(key) else ""
