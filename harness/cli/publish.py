"""`dlbench publish`: audit every campaign and study, then write the site."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.terminal import dim, say
from harness.errors import WrongUse
from harness.validation import CHECKOUT

# An interruption is no fault of the records: the page and its rows state it.
INTERRUPTED = ("campaign.json", "finished")


def publish(
    out: Annotated[Path, typer.Option(
        "--out", metavar="DIR", help="Where the site goes.")] = CHECKOUT / "site",
    results: Annotated[Path, typer.Option(
        "--results", metavar="DIR", help="The folders to publish.")] = CHECKOUT / "results",
) -> None:
    """Audit everything under results/ and write its site: static pages that need no server.

    Exit 1 if an audit finds a fault.
    """
    from analysis.audit import audit
    from analysis.site.publish import publish as write_site

    if not results.is_dir():
        raise WrongUse(f"--results {results}: no such folder")
    if out.exists() and any(out.iterdir()) and not (out / "assets" / "site.js").exists():
        raise WrongUse(f"--out {out}: holds something other than a site, and publishing would "
                       "replace parts of it; name an empty folder")
    audits = {}
    pages = [*results.glob("**/campaign.json"), *results.glob("**/study.json")]
    for folder in sorted(page.parent for page in pages):
        found = audit.audit(folder)
        faults = [each for each in found if (each.file, each.row or each.column) != INTERRUPTED]
        if faults:
            say(f"{folder}: {len(faults)} findings; dlbench audit {folder} lists them")
            raise typer.Exit(1)
        verdict = "interrupted; what there is holds" if found else "all holds"
        name = folder.relative_to(results).as_posix()
        notes = [verdict, audit.unchecked(folder), audit.origin(folder)]
        audits[name] = "; ".join(filter(None, notes))
        dim(f"{name}: {verdict}")
    written = write_site(results, CHECKOUT / "docs", out, audits)
    say(f"{len(written)} pages: {out / 'index.html'}")
