"""`dlbench publish` and `dlbench pack`: audit results, write their site, compress them."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.terminal import dim, say
from harness.errors import WrongUse
from harness.validation import CHECKOUT

# An interrupted campaign is published: its page says so, and rows say how many processes they have.
INTERRUPTED = ("campaign.json", "finished")
INDEX = "README.md"


def publish(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the site goes.")]
    = CHECKOUT / "site",
    results: Annotated[Path, typer.Option("--results", metavar="DIR",
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

    if not results.is_dir():
        raise WrongUse(f"--results {results}: no such folder")
    if index:
        (results / INDEX).write_text(indexing.readme(results), encoding="utf-8")
        say(f"Index: {results / INDEX}")
        return
    # `make docs` may have built docs/ there already
    others = {path.name for path in out.glob("*")} - {"docs"}
    if others and not (out / "assets" / "site.js").exists():
        raise WrongUse(f"--out {out}: not empty and not a site; name an empty folder, "
                       "because parts of it would be replaced")
    audits = {}
    records = [path for name in ("campaign.json", "study.json")
               for path in results.glob(f"**/{name}")]
    for file in sorted(records):
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
    pages = write_site(results, out, audits, CHECKOUT / "docs" / "first-look.png")
    say(f"{len(pages)} pages: {out / 'index.html'}")


def pack(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...",
                                                  help="Finished campaigns and studies.")],
) -> None:
    """Compress results for publishing: raw tables and logs; `report` makes removed pages again."""
    from analysis.records import packed

    for folder in folders:
        if not folder.is_dir():
            raise WrongUse(f"{folder}: no such folder")
        packed.pack_folder(folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        say(f"{folder}: {size / 1e6:.3g} MB")
