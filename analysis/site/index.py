"""The folders of results by the question that they answer: the site's first page and the index.

Each folder has a finding in one sentence. `readme` writes results/README.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.display.ranking import MARK
from analysis.records import packed
from analysis.records.pages import read_page
from analysis.site import findings
from analysis.site.grids import Published, hardware

QUESTIONS = {  # key: the question, and how to read its answers
    "faster": ("Which framework is faster?",
               "The same networks side by side. Only rows that passed the proof are ranked."),
    "why": ("Why is one slower than another?",
            "The difference of two step times, split into parts that add up to it."),
    "scale": ("How does training scale over several devices?",
              "Each framework's own data parallel training against one device."),
    "aggregation": ("What does aggregating gradients cost?",
                    "Strategies of 2016 and of today, and what the links predict."),
    "operations": ("What do algorithms and single operations cost?",
                   "Convolutions, matrix products and layers by themselves."),
    "gpu": ("What is a GPU worth?", "The same trial on the CPU and on the GPU, in one campaign."),
    "release": ("Is the new release slower?",
                "Two releases interleaved, with the smallest difference that could be seen."),
    "same": ("Do they train the same network?",
             "Loss, gradients and optimizer steps against a reference. No times."),
    "other": ("What else was found?", ""),
}
USUAL = ("fp32", "stock")
MOST_NAMES = 3  # in a cell of the index
# How `readme` begins: a page that does not is somebody else's.
TITLE = "# Published results\n\n`dlbench publish --index` writes this page"
TEXTS = ("explain.md", "compare.md", "report.md", "study.md")


@dataclass(frozen=True)
class Card:
    """One folder of results: where its page is, what it says, and on what it was measured."""

    question: str
    name: str
    title: str
    href: str
    finding: str
    facts: str


def cards(campaigns: Sequence[Published], others: Sequence[Path]) -> list[Card]:
    """Return a card for each campaign and for each folder of `others`; a comparison has one."""
    made = [_of_campaign(published) for published in campaigns
            if not (published.campaign.folder / "compare.csv").exists()]
    return made + [of_folder(folder) for folder in others]


def is_other(folder: Path) -> bool:
    """Return whether a folder has a page besides that of its campaign, or is no campaign."""
    return (not (folder / "campaign.json").exists() or (folder / "compare.csv").exists()
            or any(folder.glob("**/explain.md")))


def parts_of(folder: Path) -> list[Path]:
    """Return the folders within a folder that have pages, as the comparisons of a bisection."""
    return sorted({path.parent for path in folder.glob("**/*.md")} - {folder})


def of_folder(folder: Path) -> Card:
    """Return the card of a folder by what it holds; explanations may lie in subfolders."""
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
            finding = f"{len(explained)} differences explained; the first: {finding}"
    elif (folder / "study.json").exists():
        study = _meta(folder / "study.json").get("study")
        question = "aggregation" if study == "aggregation" else "operations"
        finding = findings.of_study(folder, str(study))
    return Card(question, folder.name, title_of(folder), f"campaigns/{folder.name}.html", finding,
                facts_of(folder))


def text_of(folder: Path) -> str:
    """Return the page that a comparison, an explanation or a study wrote, or ""."""
    page = next((folder / name for name in TEXTS if (folder / name).exists()), None)
    return page.read_text(encoding="utf-8") if page else ""


def title_of(folder: Path) -> str:
    """Return the first line of a folder's page, or its name."""
    return text_of(folder).partition("\n")[0].lstrip("# ") or folder.name


def by_question(listed: Sequence[Card]) -> list[tuple[str, str, list[Card]]]:
    """Return (question, how to read it, its cards) for every question with an answer."""
    groups = [(*QUESTIONS[key], [card for card in listed if card.question == key])
              for key in QUESTIONS]
    return [group for group in groups if group[2]]


def facts_of(folder: Path) -> str:
    """Return the hardware and the day of what was measured into a folder."""
    return " · ".join(filter(None, _facts(folder)))


def readme(results: Path) -> str:
    """Return the index of `results`: a line for each folder, from its records."""
    lines = [
        f"{TITLE} from the records. `dlbench audit DIR` checks a "
        "folder, `dlbench report DIR` makes its tables, plots and pages again. "
        "[What they show](../docs/findings/index.md).", "",
        f"folder | what it measured ({', '.join(USUAL)} unless said) | hardware | frameworks | "
        "rows verified",
        "---|---|---|---|---"]
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        cells = (_campaign_line if (folder / "campaign.json").exists() else _folder_line)(folder)
        place = next((f"{folder.name}/{name}" for name in TEXTS if (folder / name).exists()),
                     folder.name)
        row = [f"[{folder.name}]({place})", *cells]
        lines.append(" | ".join(cell.replace("|", "\\|") for cell in row).rstrip("| "))
    if any(MARK in line for line in lines):
        lines += ["", f"{MARK} The report of the folder says which rows, since when, and why."]
    return "\n".join(lines) + "\n"


def _campaign_line(folder: Path) -> list[str]:
    meta, rows = _meta(folder / "campaign.json"), packed.text_table(folder / "trials.csv")
    listed = [_several(rows[name], plural) for name, plural in (
        ("network", "networks"), ("precision", "precisions"), ("tuning", "tiers"),
        ("strategy", "strategies"))]
    wires = [f"{name}={value}" for name, value in (meta.get("variables") or {}).items()
             if name == "NCCL_P2P_DISABLE"]
    unusual = [text for text in listed if text not in ("", *USUAL)]
    what = "; ".join([campaign_title(meta), *unusual, *wires])
    devices = sorted(set(rows["devices"].astype(int)))
    count = f"{', '.join(map(str, devices))} x " if devices[-1] > 1 else ""
    on = " and ".join(hardware(meta["machine"], kind) for kind in rows["device_kind"].unique())
    verified = f"{(rows['verified'] == 'yes').sum()} of {len(rows)}"
    marked = (rows["caveat"] != "").sum() if "caveat" in rows else 0
    verified += f", {marked} with a caveat {MARK}" if marked else ""
    verified += "" if meta["finished"] else ", interrupted"
    return [what, count + on, _several(rows["framework"], "frameworks"), verified]


def _folder_line(folder: Path) -> list[str]:
    """Return the cells of a folder that is no campaign: a study, a script's tables, verdicts."""
    what, frameworks, verified = title_of(folder), "", ""
    if (folder / "verdicts.csv").exists():
        rows, faulty = findings.judged(folder)
        what = f"dlbench verify: {_several(rows['network'], 'networks')}"
        frameworks = _several(rows["framework"], "frameworks")
        verified = f"{(rows['verdict'] == 'same').sum()} of {len(rows)}"
        if len(faulty):
            verified += f", {findings.refused(faulty)}"
    elif (folder / "bisect.csv").exists():
        rows = packed.text_table(folder / "bisect.csv")
        what = f"dlbench bisect: {_several(rows['release'], 'releases')}"
    elif explained := sorted(folder.glob("*/explain.md")):
        titles = {title_of(path.parent).partition(":")[0] for path in explained}
        what = titles.pop() if len(titles) == 1 else "Why frameworks differ"
        what += f": {len(explained)} pairs"
    pages = [*folder.glob("study.json"), *sorted(folder.glob("*/campaign.json"))]
    if pages and not frameworks:
        meta = _meta(pages[0])
        used = [trial["framework"] for trial in meta.get("trials", ())]
        frameworks = _several([*used, *meta.get("workers", {})], "frameworks")
    return [what, _facts(folder)[0], frameworks, verified]


def campaign_title(meta: Mapping[str, Any]) -> str:
    """Name a campaign by the sides that it compares, by its suite's title, or by its own name."""
    compared = meta.get("comparison")
    if compared:
        return f"{compared['a']} against {compared['b']}"
    return str(meta["suite"].get("title") or meta["name"])


def _several(values: "Iterable[str] | pd.Series[str]", plural: str) -> str:
    """Name a few values; say how many there are of more."""
    names = list(dict.fromkeys(filter(None, values)))
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} {plural}"


def _of_campaign(published: Published) -> Card:
    rows = published.rows
    on = " and ".join(published.hardware(kind) for kind in dict.fromkeys(rows["device_kind"]))
    question, say = _asked(published)
    verified = f"{(rows['verified'] == 'yes').sum()} of {len(rows)} rows verified"
    verified += f", {count} with a caveat" if (count := (rows["caveat"] != "").sum()) else ""
    facts = " · ".join([on, published.campaign.meta["started"][:10], verified])
    return Card(question, published.name, published.title,
                f"campaigns/{published.name}/index.html", say(published), facts)


def _asked(published: Published) -> tuple[str, Callable[[Published], str]]:
    """Return the question that a campaign answers, and the function that says its finding."""
    rows = published.rows
    several = rows[rows["devices"] > 1]
    if rows["device_kind"].nunique() > 1:
        return "gpu", findings.of_speed_up
    if several.groupby("framework")["strategy"].nunique().max() > 1:
        return "aggregation", findings.of_strategies
    return ("scale", findings.of_scaling) if len(several) else ("faster", findings.of_campaign)


def _facts(folder: Path) -> tuple[str, str]:
    pages = (path for name in ("campaign.json", "study.json")
             for path in sorted(folder.glob(f"**/{name}")))
    meta = next(map(_meta, pages), {})
    machine = meta.get("machine") or {}
    kind = meta.get("device_kind") or meta.get("suite", {}).get("device")
    day = str(meta.get("started", ""))[:10]
    if not machine.get("cpu") and not machine.get("gpus"):
        return "", day
    return hardware(machine, "cuda" if machine.get("gpus") and kind != "cpu" else "cpu"), day


def _meta(file: Path) -> Mapping[str, Any]:
    return read_page(file, "name a folder with records")
