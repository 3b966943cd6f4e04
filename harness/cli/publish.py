"""`dlbench publish` and `dlbench pack`: audit results, write their site, compress them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from analysis.records import packed
from harness.cli.options import folder_of
from harness.cli.terminal import dim, say
from harness.errors import WrongUse
from harness.records import lock
from harness.validation import CHECKOUT

# An interrupted campaign is published: its page says so, and rows say how many processes they have.
INTERRUPTED = ("campaign.json", "finished")
INDEX = "README.md"


def publish(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=folder_of,
                                      help="Where the site goes.")] = CHECKOUT / "site",
    results: Annotated[Path, typer.Option("--results", metavar="DIR", parser=folder_of,
                                          help="The folders to publish.")] = CHECKOUT / "results",
    index: Annotated[bool, typer.Option("--index", help="Only write the index of the results, "
                                        f"{INDEX}; audit nothing.")] = False,
) -> None:
    """Audit all results and write their site: static pages that need no server.

    Exit 1 if an audit finds a fault.
    """
    from analysis.audit import audit
    from analysis.site import index as indexing
    from analysis.site.publish import publish as write_site

    if not os.path.isdir(results):
        raise WrongUse(f"--results {results}: no such folder")
    records = [path for name in (*packed.RECORDS, "compare.csv", "bisect.csv", "verdicts.csv")
               for path in results.glob(f"*/**/{name}")]
    if not records:
        raise WrongUse(f"--results {results}: holds no campaign, study or comparison; name the "
                       "folder above them")
    if index:
        (results / INDEX).write_text(indexing.readme(results), encoding="utf-8")
        say(f"Index: {results / INDEX}")
        return
    lock.probe(out)
    # `make docs` may have built docs/ there already
    others = {path.name for path in out.glob("*")} - {"docs"}
    if others and not (out / "assets" / "site.js").exists():
        raise WrongUse(f"--out {out}: not empty and not a site; name an empty folder, "
                       "because parts of it would be replaced")
    audits = {}
    for file in sorted(path for path in records if path.name in packed.RECORDS):
        found = audit.audit(file.parent)
        findings = [finding for finding in found
                    if (finding.file, finding.row or finding.column) != INTERRUPTED]
        if findings:
            say(f"{file.parent}: {len(findings)} findings; dlbench audit {file.parent} lists them")
            raise typer.Exit(1)
        verdict = "interrupted; what there is holds" if found else "all holds"
        name = file.parent.relative_to(results).as_posix()
        notes = [verdict, audit.unchecked(file.parent), audit.origin(file.parent)]
        audits[name] = "; ".join(filter(None, notes))
        dim(f"{name}: {verdict}")
    with _replaced(out) as made:
        pages = write_site(results, made, audits, CHECKOUT / "docs" / "first-look.png")
    say(f"{len(pages)} pages: {out / 'index.html'}")


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """Yield a folder beside `out`; what the block wrote there takes the place of what `out` has.

    If the block fails, `out` stays as it is.
    """
    with (lock.writing(out),
          TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name}.") as beside):
        made, before = Path(beside, "made"), Path(beside, "before")
        made.mkdir()
        before.mkdir()
        yield made
        out.mkdir(parents=True, exist_ok=True)
        for part in made.iterdir():
            if (out / part.name).exists():
                (out / part.name).rename(before / part.name)
            part.rename(out / part.name)


def pack(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", parser=folder_of,
                                                  help="Finished campaigns and studies.")],
) -> None:
    """Compress results for publishing: raw tables and logs; `report` makes removed pages again."""
    for folder in folders:
        if not os.path.isdir(folder):
            raise WrongUse(f"{folder}: no such folder")
        if not packed.homes_of(folder):
            raise WrongUse(f"{folder}: holds no campaign and no study; name a folder that "
                           "`dlbench run` or `dlbench study` wrote")
        packed.pack_folder(folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        say(f"{folder}: {size / 1e6:.3g} MB")
