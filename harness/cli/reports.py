"""Commands that read records: `report`, `join`, `audit`, `sign`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import folder_of
from harness.cli.terminal import console, dim, say, writing
from harness.errors import WrongUse, brief

if TYPE_CHECKING:
    from analysis.records.reader import Campaign

STATUSES = ("ok", "unsupported", "failed")  # of a process


def report(
    folders: Annotated[list[Path], typer.Argument(
        metavar="DIR...", parser=folder_of,
        help="Campaigns, or a study, as dlbench wrote them.")],
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", parser=folder_of,
        help="Default: the records' folder; of several, `report` beside the first.")] = None,
) -> None:
    """Make tables, plots and a page from the records of campaigns or of a study."""
    from analysis.studies import kinds

    for folder in folders:
        if folder.is_file():
            raise WrongUse(f"{folder}: is a file; name the folder of the records")
        if folders.count(folder) > 1:
            raise WrongUse(f"{folder}: is named twice; name it once")
    out = out or (folders[0] if len(folders) == 1 else folders[0].parent / "report")
    if len(folders) > 1 or not (folders[0] / "study.json").is_file():
        write_report(folders, out)
        return
    with writing(out):
        say(f"Page: {kinds.write(folders[0], out)}")


def join(
    folders: Annotated[list[Path], typer.Argument(
        metavar="DIR...", parser=folder_of,
        help="Campaigns of one suite, each in a folder named after its node.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=folder_of,
                                      help="The joined campaign.")],
) -> None:
    """Join the campaigns that several nodes have run; intervals are then over nodes."""
    from harness.records import joined

    joined.join(folders, out)
    write_report([out], out)


def audit(folders: Annotated[list[Path], typer.Argument(
        metavar="DIR...", parser=folder_of, help="Campaigns, as published.")],
    signed_by: Annotated[Path | None, typer.Option(
        "--signed-by", metavar="FILE", parser=folder_of,
        help="Also check the signature: the signers to trust, as OpenSSH's allowed_signers.")
    ] = None,
) -> None:
    """Derive every published number from the raw records again, and check hashes and records.

    Exit 1 if something differs.
    """
    from analysis.audit import audit
    from harness.cli.progress import count
    from harness.records import signature

    total = 0
    for folder in folders:
        findings = audit.audit(folder)
        name, fault = signature.signer(folder, signed_by) if signed_by else ("", "")
        if fault:
            findings.append(audit.Finding(
                signature.SIGNATURE, "", "", f"a signer of {signed_by}", fault))
        total += len(findings)
        say(f"{folder}: {count(len(findings), 'finding') if findings else 'all holds'}")
        for file, row, column, expected, found in findings:
            place = ", ".join(filter(None, [file, row, column]))
            compared = f"expected {expected or 'nothing'}, found {found or 'nothing'}"
            say(f"  {place}: {compared if row or column or expected else found}")
        for remark in audit.remarks(folder):
            say(f"  remark: {remark}")
        signed = f"signed by {name}" if name else ""
        for note in filter(None, [signed, audit.unchecked(folder), audit.origin(folder)]):
            dim(f"  {note}")
    if total:
        raise typer.Exit(1)


def sign(
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=folder_of)],
    key: Annotated[Path, typer.Option(
        "--key", metavar="FILE", parser=folder_of, help="A private SSH key.")],
) -> None:
    """Sign a folder's hashes, so that `dlbench audit --signed-by` can tell whose they are."""
    from harness.records import signature

    if not (folder / signature.MANIFEST).is_file():
        raise WrongUse(f"{folder / signature.MANIFEST}: no such file; `dlbench report` writes it")
    say(f"Signature: {signature.sign(folder, key)}")


def write_report(folders: list[Path], out: Path) -> set[str]:
    """Write the report, print the table and the page's path; return the statuses of the rows."""
    from analysis.records import manifest, reader
    from analysis.report import report
    from analysis.trials import summary

    statuses = set()
    with writing(out):
        for folder in folders:
            campaign = reader.read(folder)
            _refuse_damaged(campaign)
            console.print(report.terminal_table(campaign))
            statuses |= set(summary.summarise(campaign)["status"])
            if out == folder:
                summary.rewrite(folder)
        paths = report.write(folders, out)
        if out in folders:
            if len(folders) == 1 and campaign.meta.get("finished"):
                manifest.renew_manifest(out)
            else:
                manifest.write_manifest(out)
    say(f"Page: {next(path for path in paths if path.suffix == '.html')}")
    return statuses


def _refuse_damaged(campaign: "Campaign") -> None:
    """Raise WrongUse if rows of a finished campaign are lost, or a process has an odd status."""
    planned = any(trial["status"] == "planned" for trial in campaign.trials)
    succeeded = campaign.processes["status"] == "ok"
    for name, table, expected in (("processes.csv", campaign.processes, planned),
                                  ("windows.csv", campaign.windows, succeeded.any())):
        if campaign.meta.get("finished") and expected and table.empty:
            raise WrongUse(f"{campaign.folder / name}: has no row, though the campaign has "
                           "finished; restore the file from a copy, or measure again")
    for status in campaign.processes["status"]:
        if status not in STATUSES:
            raise WrongUse(f"{campaign.folder / 'processes.csv'}: a process has the status "
                           f"{brief(status, 50)!r}, not one of {', '.join(STATUSES)}; restore the "
                           "file from a copy")
