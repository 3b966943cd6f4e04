"""The word of `dlbench publish`: it audits every campaign and study, then lets `analysis.site.publish` write the pages."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.errors import WrongUse
from harness.validation import CHECKOUT

console = Console()

INTERRUPTED = ("campaign.json", "finished")  # no fault of the records: the page says it, and rows say how many processes they have


def publish(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the site goes.")] = CHECKOUT / "site",
    results: Annotated[Path, typer.Option("--results", metavar="DIR", help="The folders to publish.")] = CHECKOUT / "results",
) -> None:
    """Audit everything under results/ and write its site: static pages that need no server; exit 1 where an audit finds a fault."""
    from analysis.audit import audit
    from analysis.site import publish as site

    if not results.is_dir():
        raise WrongUse(f"--results {results}: no such folder")
    if out.exists() and any(out.iterdir()) and not (out / "assets" / "site.js").exists():
        raise WrongUse(f"--out {out}: holds something else than a site; name an empty folder, for parts of it would be replaced")
    audits = {}
    for file in sorted(path for name in ("campaign.json", "study.json") for path in results.glob(f"**/{name}")):
        found = audit.audit(file.parent)
        findings = [finding for finding in found if (finding.file, finding.row or finding.column) != INTERRUPTED]
        if findings:
            said = f"{file.parent}: {len(findings)} findings; dlbench audit {file.parent} lists them"
            console.print(said, highlight=False, soft_wrap=True)
            raise typer.Exit(1)
        verdict = "interrupted; what there is holds" if found else "all holds"
        name = file.parent.relative_to(results).as_posix()
        audits[name] = "; ".join(filter(None, [verdict, audit.unchecked(file.parent), audit.origin(file.parent)]))
        console.print(f"{name}: {verdict}", style="dim", highlight=False)
    pages = site.publish(results, CHECKOUT / "docs", out, audits)
    console.print(f"{len(pages)} pages: {out / 'index.html'}", highlight=False, soft_wrap=True)
