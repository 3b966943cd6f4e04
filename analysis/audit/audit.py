"""Checks a published campaign or study: everything derived is derived again and compared.

Hashes show what changed since the manifest was written. The rest needs no manifest: trials.csv,
every table and the pages are made again in a temporary folder, and the raw records must fit one
another (`analysis.audit.consistency`). Plots are compared by hash alone, because their bytes depend
on the release of the plotting library.
"""

import csv
import io
import itertools
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from analysis.aggregation import links
from analysis.aggregation import report as aggregation
from analysis.audit import consistency
from analysis.audit.timings import Finding
from analysis.display import provenance
from analysis.records import manifest, packed, pages, reader, study_reader
from analysis.records.reader import Campaign
from analysis.records.text import BadRecords, shortened
from analysis.report import report
from analysis.studies import kinds
from analysis.trials import effort, summary

TOLERANCE = 1e-9  # relative, of derived numbers: libraries differ in the last digits
LONGEST_PART = 300  # of a finding, in characters
MOST_FINDINGS = 20  # of one file; the rest is counted
FIGURES = re.compile(r"<figure>.*?</figure>", re.DOTALL)


def audit(folder: str | Path) -> list[Finding]:
    """Return what does not fit in the campaign or study in `folder`; empty if all holds.

    Raises BadRecords if there is no campaign and no study.
    """
    folder = Path(folder)
    is_study = os.path.lexists(folder / "study.json")
    if not is_study and not os.path.lexists(folder / "campaign.json"):
        raise BadRecords(f"{folder / 'campaign.json'}: no such file; "
                         "name a folder that `dlbench run` wrote")
    changed = [Finding(file, "", "", expected, found)
               for file, expected, found in manifest.check_manifest(folder)]
    return list(_shortened(changed + (_study(folder) if is_study else _campaign(folder))))


def origin(folder: str | Path) -> str:
    """Say which source measured the campaign, and whether this checkout is the same.

    This is information, not a verdict.
    """
    study = Path(folder) / "study.json"
    page = study if os.path.lexists(study) else Path(folder) / "campaign.json"
    try:
        meta = pages.read_page(page, "")
        pages.check_page(page, meta, pages.Origin)
    except BadRecords:  # `audit` has named it
        return "no commit and no source hash can be read"
    measured, here = meta.get("source_hash"), manifest.source_hash()
    commit = provenance.commit(meta) if meta.get("git_commit") else "no commit recorded"
    if not measured:
        return f"{commit}; no source hash recorded"
    resumed = "".join(f", resumed {text}" for text in meta.get("resumed") or ())
    same = ("this checkout is the one that measured" if measured == here
            else f"this checkout is another, {here[:12]}")
    return f"{commit}; source {measured[:12]}{resumed}; {same}"


def remarks(folder: str | Path) -> list[str]:
    """Say what readers of a campaign should know although nothing in it is wrong.

    There is nothing to say of a study, or of records that `audit` cannot read.
    """
    if not (Path(folder) / "campaign.json").is_file():
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return effort.remarks(reader.read(folder))
    except (BadRecords, KeyError, TypeError, ValueError, AttributeError):
        return []  # `audit` has named the fault


def unchecked(folder: str | Path) -> str:
    """Say which tables of an aggregation study cannot be derived without campaigns beside it."""
    missing = ", ".join(each.name for each in _recorded(Path(folder)) if not each.is_dir())
    if not missing:
        return ""
    return f"predictions.csv, overlap.csv and what_if.csv not checked: not beside it are {missing}"


def _campaign(folder: Path) -> list[Finding]:
    findings: list[Finding] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `consistency` counts an unfinished last line
            campaign = reader.read(folder)
            findings += consistency.check(campaign)
            trials = summary.summarise(campaign)
            findings += _rows(campaign, trials)
            findings += _pages(campaign, trials)
    except BadRecords as error:
        findings.append(Finding(folder.name, "", "", "records that can be read", str(error)))
    except Exception as error:  # whatever such values do to the code that derives from them
        findings.append(Finding("campaign.json", "", "", "values of docs/reference/records.md",
                                f"{type(error).__name__}: {error}"))
    return findings


def _study(folder: Path) -> list[Finding]:
    """Check a study's rows and derive its tables, except those from a campaign's kernels."""
    findings: list[Finding] = []
    try:
        meta = study_reader.read_page(folder)
        if not meta["finished"]:
            findings.append(Finding("study.json", "", "finished", "when it ended",
                                    "null: it was interrupted or runs still"))
        name = meta["study"]
        if name == "aggregation":
            return findings + _aggregation(folder)
        if name not in kinds.STUDIES:
            return findings  # only its hashes can be checked
        findings += itertools.starmap(Finding, study_reader.faults(study_reader.read(folder)))
        with tempfile.TemporaryDirectory(prefix="dlbench-audit-") as made:
            kinds.write(folder, Path(made), plots=False)
            for path in sorted(Path(made).glob("tables/*")):
                name = f"tables/{path.name.removesuffix(packed.SUFFIX)}"
                findings += _compare(folder, name, packed.read_text(path), _cells)
    except Exception as error:  # whatever such values do to the code that derives from them
        findings.append(Finding("study.json", "", "", "records that can be read",
                                f"{type(error).__name__}: {error}"))
    return findings


def _aggregation(folder: Path) -> list[Finding]:
    """Derive an aggregation study from its links and, if present, from the campaigns it names."""
    fits = links.fit_all(links.read(folder / "links.csv"))
    tables, recorded = aggregation.of_links(fits), _recorded(folder)
    if all(each.is_dir() for each in recorded):
        tables |= aggregation.of_campaigns(fits, [reader.read(each) for each in recorded])
    return [finding for name, table in tables.items()
            for finding in _compare(folder, f"{name}.csv", aggregation.as_csv(table), _cells)]


def _recorded(folder: Path) -> list[Path]:
    """Return the folders of the campaigns that an aggregation study names; [] for other folders."""
    try:
        meta = study_reader.read_page(folder)
    except BadRecords:  # `audit` has named it, or there is no study
        return []
    return [folder.resolve().parent / name for name in meta.get("recorded", [])]


def _rows(campaign: Campaign, trials: pd.DataFrame) -> list[Finding]:
    return _compare(campaign.folder, "trials.csv", summary.as_csv(campaign, trials), _cells)


def _pages(campaign: Campaign, trials: pd.DataFrame) -> list[Finding]:
    """Make the report again and compare its tables and pages, if the folder has a report."""
    folder = campaign.folder
    if not (folder / "report.md").exists() and not (folder / "tables").exists():
        return []
    findings = []
    with tempfile.TemporaryDirectory(prefix="dlbench-audit-") as made:
        report.write_derived([(campaign, trials)], made, plots=False)
        for path in sorted([*Path(made).glob("tables/*.csv"), *Path(made).glob("report.*")]):
            name = path.relative_to(made).as_posix()
            if name == "report.html" and not (folder / name).exists():
                continue  # `dlbench pack` removed it
            compare = _cells if path.suffix == ".csv" else _lines
            findings += _compare(folder, name, path.read_text(encoding="utf-8"), compare)
    return findings


def _compare(folder: Path, name: str, expected: str,
             how: Callable[[str, str, str], Iterator[Finding]]) -> list[Finding]:
    if not packed.find(folder / name).is_file():
        return [Finding(name, "", "", "what `dlbench report` writes", "no such file")]
    return list(how(name, expected, packed.read_text(folder / name)))


def _cells(name: str, expected: str, found: str) -> Iterator[Finding]:
    """Compare two CSV texts cell by cell; numbers may differ by rounding."""
    wanted, present = (list(csv.reader(io.StringIO(text))) for text in (expected, found))
    header = wanted[0] if wanted else []
    lines = itertools.zip_longest(wanted, present)
    for number, (ours, theirs) in enumerate(lines, start=1):
        cells = itertools.zip_longest(header, ours or [], theirs or [], fillvalue="")
        for column, mine, other in cells:
            if not _same(mine, other):
                yield Finding(name, f"line {number}", column, mine, other)


def _lines(name: str, expected: str, found: str) -> Iterator[Finding]:
    """Compare two pages line by line, without figures."""
    pages = (FIGURES.sub("<figure></figure>", text).splitlines() for text in (expected, found))
    for number, (ours, theirs) in enumerate(itertools.zip_longest(*pages, fillvalue=""), start=1):
        if ours != theirs:
            pairs = enumerate(itertools.zip_longest(ours, theirs))
            start = next(index for index, pair in pairs if len(set(pair)) > 1)
            part = slice(max(0, start - 30), start + 50)
            place = f"character {start + 1}"
            yield Finding(name, f"line {number}", place, ours[part], theirs[part])


def _same(expected: str, found: str) -> bool:
    if expected == found:
        return True
    try:
        return math.isclose(float(expected), float(found), rel_tol=TOLERANCE)
    except ValueError:
        return False


def _shortened(findings: list[Finding]) -> Iterator[Finding]:
    for file, group in itertools.groupby(findings, key=lambda finding: finding.file):
        listed = [Finding(*(shortened(each, LONGEST_PART) for each in finding))
                  for finding in group]
        yield from listed[:MOST_FINDINGS]
        if len(listed) > MOST_FINDINGS:
            yield Finding(file, "", "", "", f"and {len(listed) - MOST_FINDINGS} findings more")
