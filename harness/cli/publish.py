"""`dlbench publish`, `pack` and `export`: write results for a site, for git and for other tools."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from analysis.records import packed
from harness.cli.options import folder_of
from harness.cli.terminal import dim, say
from harness.environments import recipes
from harness.errors import WrongUse, brief, install
from harness.records import lock
from harness.validation import CHECKOUT

INDEX = "README.md"
RECORDS = (*packed.RECORDS, "compare.csv", "bisect.csv", "verdicts.csv")


def publish(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=folder_of,
                                      help="Where the site goes.")] = CHECKOUT / "site",
    results: Annotated[Path, typer.Option("--results", metavar="DIR", parser=folder_of,
                                          help="The folders to publish.")] = CHECKOUT / "results",
    index: Annotated[bool, typer.Option("--index", help="Only write the index of the results, "
                                        f"{INDEX}; audit nothing.")] = False,
) -> None:
    """Audit the results that published.txt lists, and write their site: pages without a server.

    Without the list, all results are published whose rows have an interval. Exit 1 if an audit
    finds a fault.
    """
    from analysis.site import index as indexing
    from analysis.site import links, selection
    from analysis.site.publish import publish as write_site

    if not os.path.isdir(results):
        raise WrongUse(f"--results {results}: no such folder")
    if not any(any(results.glob(f"*/**/{name}")) for name in RECORDS):
        raise WrongUse(f"--results {results}: holds no campaign, study or comparison; name the "
                       "folder above them")
    if index:
        _refuse_foreign(results / INDEX, indexing.TITLE)
        (results / INDEX).write_text(indexing.readme(results), encoding="utf-8")
        say(f"Index: {results / INDEX}")
        return
    homes, left = selection.choose(results, recipes.names())
    for name, reason in left.items():
        say(f"{name}: not published: {reason}")
    if not homes:
        raise WrongUse(f"--results {results}: holds nothing that can be published")
    lock.probe(out)
    # `make docs` may have built docs/ there already
    others = {path.name for path in out.glob("*")} - {"docs"}
    if others and not (out / "assets" / "site.js").exists():
        raise WrongUse(f"--out {out}: not empty and not a site; name an empty folder, "
                       "because parts of it would be replaced")
    audits = _audited(homes)
    with _replaced(out) as made:
        pages = write_site(homes, made, audits, CHECKOUT / "docs")
        lost = links.broken(made, CHECKOUT / "docs")
        for page, link in lost:
            say(f"{page}: broken link: {link}")
        if lost:
            raise typer.Exit(1)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    say(f"{len(pages)} pages, {size / 1e6:.3g} MB: {out / 'index.html'}")


def _refuse_foreign(page: Path, beginning: str) -> None:
    """Raise WrongUse if a page exists that dlbench did not write."""
    if page.exists() and not page.read_text(errors="replace").startswith(beginning):
        raise WrongUse(f"{page}: dlbench did not write it, and the index would replace it; move it "
                       "away")


def _audited(homes: Sequence[Path]) -> dict[str, str]:
    """Audit the records in `homes` and return what each audit says; exit 1 if it finds a fault.

    It is no fault that a campaign stopped: `selection` has counted its processes.
    """
    from analysis.audit import audit

    audits = {}
    for file in sorted(file for home in homes for name in packed.RECORDS
                       for file in home.glob(f"**/{name}")):
        findings = audit.audit(file.parent)
        stopped = [(each.file, each.column) for each in findings] == [("campaign.json", "finished")]
        if findings and not stopped:
            say(f"{file.parent}: {len(findings)} findings; dlbench audit {file.parent} lists them")
            raise typer.Exit(1)
        name = file.parent.relative_to(homes[0].parent).as_posix()
        holds = "all holds, but it stopped early" if stopped else "all holds"
        notes = [holds, audit.unchecked(file.parent), audit.origin(file.parent)]
        audits[name] = "; ".join(filter(None, notes))
        dim(f"{name}: all holds")
    return audits


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """Yield a folder beside `out`; what the block wrote there takes the place of what `out` has.

    If the block fails, `out` stays as it is.
    """
    with (lock.writing(out, measures=False),
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
        homes = packed.homes_of(folder)
        if not homes:
            raise WrongUse(f"{folder}: is no campaign, study or comparison; name a folder that "
                           "`dlbench run`, `study` or `compare` wrote")
        with ExitStack() as stack:
            # A driver that measures into it would lose its logs.
            for home in homes:
                stack.enter_context(lock.held(home))
            packed.pack_folder(folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        say(f"{folder}: {size / 1e6:.3g} MB")


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=folder_of,
                                           help="A campaign, as `dlbench run` wrote it.")],
    to: Annotated[str, typer.Option("--to", help="tensorboard, mlflow or prometheus.")],
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", parser=folder_of, help="Default: DIR-TOOL, beside DIR.")] = None,
) -> None:
    """Write a campaign's records for another tool, with that tool's library."""
    from analysis.records import reader
    from analysis.trials import exports

    if to not in exports.TOOLS:
        raise WrongUse(f"--to {brief(to, 100)}: no such tool; name one of "
                       f"{', '.join(exports.TOOLS)}")
    out = out or folder.with_name(f"{folder.name}-{to}")
    campaign = reader.read(folder)
    with lock.writing(out, measures=False):
        out.mkdir(parents=True, exist_ok=True)
        try:
            say(exports.TOOLS[to](campaign, out))
        except ImportError as error:
            with suppress(OSError):
                out.rmdir()
            raise WrongUse(f"--to {to}: {error}; {install('export')}") from None
