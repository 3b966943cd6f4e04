"""Does a published campaign hold? Everything that can be derived is derived again from the raw records and compared.

Hashes show what was changed since the manifest was written. The rest needs no manifest: trials.csv, every table and the pages are
made anew in a temporary folder, and the raw records must fit one another (`analysis.audit.consistency`). Plots are compared by hash
alone, for their bytes follow the plotting library's release.
"""

import csv
import io
import itertools
import json
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.aggregation import links
from analysis.aggregation import report as aggregation_report
from analysis.audit import consistency
from analysis.audit.consistency import Finding
from analysis.records import manifest, packed, reader, study_reader
from analysis.records.reader import BadRecords, Campaign
from analysis.report import report
from analysis.studies import conv, gemm, layers
from analysis.trials import summary

TOLERANCE = 1e-9  # relative, of derived numbers: libraries differ in the last digits
FIRST_COLUMNS = 35  # of trials.csv in the first release
MOST_FINDINGS = 20  # of one file; the rest is counted
STUDIES = {"gemm": gemm.write, "conv": conv.write, "layers": layers.write}
FIGURES = re.compile(r"<figure>.*?</figure>", re.DOTALL)


def audit(folder: str | Path) -> list[Finding]:
    """Return what does not fit in the campaign or study in `folder`; nothing where all holds. BadRecords where there is none."""
    folder = Path(folder)
    if (folder / "study.json").is_file():
        return list(_shortened(_study(folder)))
    if not (folder / "campaign.json").is_file():
        raise BadRecords(f"{folder / 'campaign.json'}: no such file; name a folder that `dlbench run` wrote")
    findings = [Finding(file, "", "", expected, found) for file, expected, found in manifest.check_manifest(folder)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unfinished last line, which `consistency` counts
            campaign = reader.read(folder)
            findings += consistency.check(campaign)
            findings += _rows(campaign)
            findings += _pages(campaign)
    except BadRecords as error:
        findings.append(Finding(folder.name, "", "", "records that can be read", str(error)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        findings.append(Finding("campaign.json", "", "", "values of docs/reference/records.md", f"{type(error).__name__}: {error}"))
    return list(_shortened(findings))


def origin(folder: str | Path) -> str:
    """Say which source measured the campaign, and whether the present checkout is that one. Information, no verdict."""
    try:
        page = next(path for path in (Path(folder) / "study.json", Path(folder) / "campaign.json") if path.exists())
        meta = json.loads(page.read_text(encoding="utf-8"))
        measured, here = meta.get("source_hash"), manifest.source_hash()
    except (StopIteration, ValueError, AttributeError):  # `audit` has named it
        return "no commit and no source hash can be read"
    commit = f"commit {meta['git_commit'][:12]}" if meta.get("git_commit") else "no commit recorded"
    stated = ", stated and not checked" if meta.get("git_commit_stated") else ""
    changed = ", with uncommitted changes" if meta.get("git_commit") and meta.get("git_dirty") else ""
    if not measured:
        return f"{commit}{stated}{changed}; no source hash recorded"
    resumed = "".join(f", resumed {text}" for text in meta.get("resumed") or ())
    same = "this checkout is the one that measured" if measured == here else f"this checkout is another, {here[:12]}"
    return f"{commit}{stated}{changed}; source {measured[:12]}{resumed}; {same}"


def _study(folder: Path) -> list[Finding]:
    """Check a study's hashes and rows, and derive its tables again, but for those that came from a campaign's kernels."""
    findings = [Finding(file, "", "", expected, found) for file, expected, found in manifest.check_manifest(folder)]
    try:
        name = json.loads((folder / "study.json").read_text(encoding="utf-8"))["study"]
        if name == "aggregation":
            return findings + _aggregation(folder)
        if name not in STUDIES:
            return findings  # the hashes are all that is known of it here
        findings += [Finding(*fault) for fault in study_reader.faults(study_reader.read([folder]))]
        with tempfile.TemporaryDirectory(prefix="dlbench-audit-") as made:
            STUDIES[name]([folder], Path(made))
            for path in sorted(Path(made).glob("tables/*")):
                name = f"tables/{path.name.removesuffix(packed.SUFFIX)}"
                findings += _compare(folder, name, packed.read_text(path), _cells)
    except (BadRecords, KeyError, TypeError, ValueError) as error:
        findings.append(Finding("study.json", "", "", "records that can be read", f"{type(error).__name__}: {error}"))
    return findings


def unchecked(folder: str | Path) -> str:
    """Say which tables of a study of aggregation `audit` cannot derive, for want of the campaigns beside it. No verdict."""
    missing = ", ".join(each.name for each in _recorded(Path(folder)) if not each.is_dir())
    return f"predictions.csv, overlap.csv and what_if.csv not checked: not beside it are {missing}" if missing else ""


def _aggregation(folder: Path) -> list[Finding]:
    """Derive a study of aggregation again: from its links, and where the campaigns that it names lie beside it, from these too."""
    fits = links.fit_all(links.read(folder / "links.csv"))
    tables, recorded = aggregation_report.of_links(fits), _recorded(folder)
    if all(each.is_dir() for each in recorded):
        tables |= aggregation_report.of_campaigns(fits, [reader.read(each) for each in recorded])
    return [finding for name, table in tables.items()
            for finding in _compare(folder, f"{name}.csv", aggregation_report.as_csv(table), _cells)]


def _recorded(folder: Path) -> list[Path]:
    """Where the campaigns of a study of aggregation are looked for; no paths for other folders."""
    page = folder / "study.json"
    names = json.loads(page.read_text(encoding="utf-8")).get("recorded", []) if page.is_file() else []
    return [folder.resolve().parent / name for name in names]


def _rows(campaign: Campaign) -> list[Finding]:
    """Derive trials.csv again. A table of an older release lacks the last columns, for new ones are only ever appended."""
    table = summary.summarise(campaign)
    published = campaign.folder / "trials.csv"
    header = published.read_text(encoding="utf-8").partition("\n")[0].split(",") if published.is_file() else []
    if len(header) >= FIRST_COLUMNS and header == list(table.columns[:len(header)]):
        table = table[header]
    return _compare(campaign.folder, "trials.csv", table.to_csv(index=False, lineterminator="\n"), _cells)


def _pages(campaign: Campaign) -> list[Finding]:
    """Make the report again and compare its tables and pages; a folder without a report has none to be wrong."""
    folder = campaign.folder
    if not (folder / "report.html").exists() and not (folder / "tables").exists():
        return []
    findings = []
    with tempfile.TemporaryDirectory(prefix="dlbench-audit-") as made:
        report.write([folder], made, plots=False)
        for path in sorted([*Path(made).glob("tables/*.csv"), *Path(made).glob("report.*")]):
            compare = _cells if path.suffix == ".csv" else _lines
            findings += _compare(folder, path.relative_to(made).as_posix(), path.read_text(encoding="utf-8"), compare)
    return findings


def _compare(folder: Path, name: str, expected: str, how: Callable[[str, str, str], Iterator[Finding]]) -> list[Finding]:
    if not packed.find(folder / name).is_file():
        return [Finding(name, "", "", "what `dlbench report` writes", "no such file")]
    return list(how(name, expected, packed.read_text(folder / name)))


def _cells(name: str, expected: str, found: str) -> Iterator[Finding]:
    """Compare two CSV texts cell by cell; numbers may differ by rounding."""
    wanted, present = (list(csv.reader(io.StringIO(text))) for text in (expected, found))
    none: list[str] = []
    header = wanted[0] if wanted else none
    for number, (ours, theirs) in enumerate(itertools.zip_longest(wanted, present, fillvalue=none), start=1):
        for column, mine, other in itertools.zip_longest(header, ours, theirs, fillvalue=""):
            if not _same(mine, other):
                yield Finding(name, f"line {number}", column, mine, other)


def _lines(name: str, expected: str, found: str) -> Iterator[Finding]:
    """Compare two pages line by line, figures left out."""
    pages = (FIGURES.sub("<figure></figure>", text).splitlines() for text in (expected, found))
    for number, (ours, theirs) in enumerate(itertools.zip_longest(*pages, fillvalue=""), start=1):
        if ours != theirs:
            start = next(index for index, pair in enumerate(itertools.zip_longest(ours, theirs)) if len(set(pair)) > 1)
            part = slice(max(0, start - 30), start + 50)
            yield Finding(name, f"line {number}", f"character {start + 1}", ours[part], theirs[part])


def _same(expected: str, found: str) -> bool:
    if expected == found:
        return True
    try:
        return math.isclose(float(expected), float(found), rel_tol=TOLERANCE)
    except ValueError:
        return False


def _shortened(findings: list[Finding]) -> Iterator[Finding]:
    for file, group in itertools.groupby(findings, key=lambda finding: finding.file):
        listed = list(group)
        yield from listed[:MOST_FINDINGS]
        if len(listed) > MOST_FINDINGS:
            yield Finding(file, "", "", "", f"and {len(listed) - MOST_FINDINGS} findings more")
