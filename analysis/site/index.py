"""The site's first page: every folder of results below the question that it answers, with one finding and a small picture."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from analysis.site import findings
from analysis.site.tables import Published

QUESTIONS = {  # key: the question, and how its answers are to be read
    "faster": ("Which framework is faster?", "The same networks side by side; only rows that are proved equal are ranked."),
    "why": ("Why is one slower than another?", "The difference of two step times, taken apart into parts that add up to it."),
    "scale": ("How does training scale over several devices?", "Each framework's own data parallel training against one device."),
    "aggregation": ("What does aggregating gradients cost?", "Strategies of 2016 and of today, and what their links predict."),
    "operations": ("What do algorithms and single operations cost?", "Convolutions, matrix products and layers by themselves."),
    "gpu": ("What is a GPU worth?", "The same trial on the processor and on the GPU, in one campaign."),
    "release": ("Is the new release slower?", "Two releases interleaved, with the difference that could have been seen."),
    "same": ("Do they train the same network?", "Loss, gradients and optimiser steps against a reference; no times."),
    "other": ("What else was found?", ""),
}
PICTURES = ("explain", "efficiency", "speed_up", "relative_speed", "step_time", "predictions", "ratios", "sweep", "article",
            "layers")  # plots by the beginning of their names, the one that says most first
PICTURE_PIXELS = (320, 180)


@dataclass(frozen=True)
class Card:
    """One folder of results: where its page is, what it says, and on what it was measured."""

    question: str
    name: str
    title: str
    href: str
    finding: str
    facts: str
    picture: str = ""


def cards(campaigns: Sequence[Published], others: Sequence[Path]) -> list[Card]:
    """A card for each campaign, and for each folder of `others`, which are no campaigns or hold a comparison."""
    made = [_of_campaign(published) for published in campaigns if not (published.campaign.folder / "compare.csv").exists()]
    return made + [of_folder(folder) for folder in others]


def is_other(folder: Path) -> bool:
    """Whether a folder has a page besides that of its campaign, or holds none."""
    return not (folder / "campaign.json").exists() or (folder / "compare.csv").exists() or any(folder.glob("**/explain.md"))


def parts_of(folder: Path) -> list[Path]:
    """The folders within a folder that have pages of their own, as each comparison of a bisection has."""
    return sorted({path.parent for path in folder.glob("**/*.md")} - {folder})


def of_folder(folder: Path) -> Card:
    """The card of a folder by what it holds; explanations may lie in folders within it."""
    explained = sorted(folder.glob("**/explain.md"))
    question, finding = "other", ""
    if (folder / "compare.csv").exists():
        question, finding = "release", findings.of_comparison(folder)
    elif (folder / "bisect.csv").exists():
        question, finding = "release", findings.of_bisection(folder)
    elif (folder / "verdicts.csv").exists():
        question, finding = "same", findings.of_verdicts(folder)
    elif explained:
        question, finding = "why", findings.of_explanation(explained[0].parent)
        if len(explained) > 1:
            finding = f"{len(explained)} differences taken apart; the first: {finding}"
    elif (folder / "study.json").exists():
        question = "aggregation" if _meta(folder / "study.json").get("study") == "aggregation" else "operations"
        finding = findings.of_study(folder)
    return Card(question, folder.name, title_of(folder), f"campaigns/{folder.name}.html", finding, facts_of(folder))


def text_of(folder: Path) -> str:
    """The page that a comparison, an explanation or a study wrote; empty where there is none."""
    names = ("explain.md", "compare.md", "report.md", "study.md")
    page = next((folder / name for name in names if (folder / name).exists()), None)
    return page.read_text(encoding="utf-8") if page else ""


def title_of(folder: Path) -> str:
    """The first line of a folder's page, or its name."""
    return text_of(folder).partition("\n")[0].lstrip("# ") or folder.name


def by_question(listed: Sequence[Card]) -> list[tuple[str, str, list[Card]]]:
    """(question, how to read it, its cards) of every question that has an answer."""
    groups = [(*QUESTIONS[key], [card for card in listed if card.question == key]) for key in QUESTIONS]
    return [group for group in groups if group[2]]


def draw_picture(folder: Path, out: Path) -> bool:
    """Write a small picture of a folder's main plot to `out`; False where it has no plot."""
    plots = {path.stem: path for path in sorted(folder.glob("**/plots/*.png"), reverse=True)}
    chosen = next((plots[name] for wanted in PICTURES for name in sorted(plots) if name.startswith(wanted)), None)
    chosen = chosen or next(iter(plots.values()), None)
    if not chosen:
        return False
    width, height = PICTURE_PIXELS
    with Image.open(chosen) as image:
        part = image.convert("RGB").crop((0, 0, image.width, min(image.height, image.width * height // width)))
        part.thumbnail((2 * width, 2 * height))
        out.parent.mkdir(parents=True, exist_ok=True)
        part.quantize(64).save(out, optimize=True)
    return True


def _of_campaign(published: Published) -> Card:
    rows = published.rows
    hardware = " and ".join(published.hardware(kind) for kind in dict.fromkeys(rows["device_kind"]))
    question, say = _asked(published)
    verified = f"{(rows['verified'] == 'yes').sum()} of {len(rows)} rows verified"
    return Card(question, published.name, published.title, f"campaigns/{published.name}/index.html", say(published),
                " · ".join([hardware, published.campaign.meta["started"][:10], verified]))


def _asked(published: Published) -> tuple[str, Callable[[Published], str]]:
    """The question that a campaign answers, and who says its finding."""
    rows = published.rows
    several = rows[rows["devices"] > 1]
    if rows["device_kind"].nunique() > 1:
        return "gpu", findings.of_speed_up
    if several.groupby("framework")["strategy"].nunique().max() > 1:
        return "aggregation", findings.of_strategies
    return ("scale", findings.of_scaling) if len(several) else ("faster", findings.of_campaign)


def facts_of(folder: Path) -> str:
    """The hardware and the day of what was measured into a folder."""
    meta = next((_meta(path) for name in ("campaign.json", "study.json") for path in sorted(folder.glob(f"**/{name}"))), {})
    machine = meta.get("machine") or {}
    kind = meta.get("device_kind") or meta.get("suite", {}).get("device")
    gpus = sorted({str(gpu.get("name")) for gpu in machine.get("gpus") or ()})
    cpu = machine.get("cpu") or {}
    hardware = ", ".join(gpus) if gpus and kind != "cpu" else f"{cpu['model']}, {cpu.get('allowed', '?')} cores" if cpu else ""
    return " · ".join(filter(None, [hardware, str(meta.get("started", ""))[:10]]))


def _meta(file: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
