"""The command line: each command reads its options, calls its package and prints.

Exit codes: 0 done; 1 the answer is no (a difference, failed rows); 2 wrong use or input, with one
message and no traceback.
"""

import faulthandler
import json
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import networks
from harness import VERSION
from harness.cli import cluster, explain, progress, publish, study
from harness.cli.comparisons import compare, track
from harness.cli.options import (
    Interpreter,
    RunOptions,
    command,
    folder_of,
    words,
)
from harness.cli.terminal import console, dim, interruptible, new_folder, say, writing
from harness.environments.interpreters import named
from harness.errors import WrongUse, brief, printable
from harness.plan.suite import MOST_JOBS
from harness.records import lock
from harness.studies.study import DEVICES, known

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False,
    help="Train the same networks in several frameworks, prove that they are the same, and time "
         "a mini-batch.")
env_app = typer.Typer(no_args_is_help=True,
                      help="The frameworks' environments, in .envs/ or $DLBENCH_ENVS.")
data_app = typer.Typer(no_args_is_help=True,
                       help="Real data sets under $DLBENCH_DATA (default data/).")
app.add_typer(env_app, name="env")
app.add_typer(data_app, name="data")
app.add_typer(study.study_app, name="study")
command(app)(compare.compare)
command(app)(compare.bisect)
command(app)(track.track)
command(app)(explain.explain)
study.study_app.command("scale")(cluster.scale)
command(app, "slurm-script")(cluster.slurm_script)
app.command()(publish.publish)
app.command()(publish.pack)
app.command()(publish.export)
app.command()(progress.live)

LONGEST_WORD = 2000  # of the command line


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    networks: Annotated[str, typer.Option(
        help="Names with commas. Default: all published ones.")] = ""
    frameworks: Annotated[str, typer.Option(
        help="Names or releases with commas.")] = "pytorch,tensorflow"
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.csv", parser=folder_of, help="Also write the verdicts here.")] = None
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16 or int8.")] = "fp32"
    tuning: Annotated[str, typer.Option(help="stock, compiled, tuned or uncompiled.")] = "stock"
    mode: Annotated[str, typer.Option(help="training, or inference: prove outputs.")] = "training"
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Checks at a time.")] = 1
    devices: Annotated[str, typer.Option(
        help="Devices that train together; several numbers with commas.")] = "1"
    interpreter: Interpreter = None


def _show_version(asked: bool) -> None:
    if asked:
        print(f"dlbench {VERSION}")
        raise typer.Exit


@app.callback()
def common(version: Annotated[bool, typer.Option(
        "--version", is_eager=True, callback=_show_version, help="Print the version.")] = False
           ) -> None:
    # The help text of the application stands above.
    pass


@app.command()
def init(file: Annotated[Path, typer.Argument(metavar="[FILE.yaml]", parser=folder_of)
                         ] = Path("suite.yaml")) -> None:
    """Write a first suite, with a comment on each key."""
    text = Path(__file__).with_name("first_suite.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as draft:
            draft.write(text.replace("suite.yaml", str(file)))
    except FileExistsError:
        raise WrongUse(f"{file}: is there already; name another file") from None
    say(f"{file}: a first suite. Look with `dlbench run {file} --dry-run`, then run it.")


@app.command("frameworks")
def show_frameworks() -> None:
    """List the frameworks with their releases, Pythons and devices."""
    from harness.cli import catalogue

    console.print(catalogue.list_frameworks())


@app.command("networks")
def show_networks(name: Annotated[str | None, typer.Argument(help="One network: its layers.")
                                  ] = None) -> None:
    """List the networks with their parameters and work, or print one network's layers."""
    from harness.cli import catalogue

    console.print(catalogue.list_layers(networks.get(name)) if name else catalogue.list_networks())


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    on: Annotated[str, typer.Option(help="slurm: describe the cluster's nodes instead.")] = "",
) -> None:
    """Describe this machine, the frameworks that run here, and what would distort its numbers."""
    from harness.machine import doctor

    if on:
        cluster.describe_nodes(on, as_json)
        return
    found = doctor.examine()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        doctor.show(found, console)


@command(app)
def verify(options: VerifyOptions) -> None:
    """Prove that frameworks train the same networks as the NumPy reference.

    Exit 1 if one is different or failed.
    """
    from harness.cli import verify

    wanted = {
        "frameworks": words(options.frameworks), "device": options.device,
        "networks": words(options.networks) or networks.names(large=False),
        "precisions": options.precision,
        "tunings": options.tuning, "mode": options.mode,
        "devices": [int(word) if word.isdecimal() else word for word in words(options.devices)],
        "interpreters": named(options.interpreter)}
    if options.out:
        lock.probe_file("--out", options.out)
    rows = verify.verify(wanted, console, options.jobs)
    if options.out:
        verify.write(rows, options.out)
    if any(row["verdict"] in ("different", "failed") for row in rows):
        raise typer.Exit(1)


@command(app)
def run(options: RunOptions) -> None:
    """Run a suite: a campaign with records, a table and a page."""
    from harness.campaign import campaign
    from harness.campaign.recorder import refuse_existing, refuse_missing
    from harness.cli.plan_table import count_traces, print_plan
    from harness.live.event_file import EventFile
    from harness.plan.planner import execution_order
    from harness.plan.suite import load_suite

    file = options.suite_file
    suite = load_suite(file, options.overrides)
    interpreters = {**suite.interpreters, **named(options.interpreter)}
    suite = suite.model_copy(update={"interpreters": interpreters})
    if options.resume and options.out is None:
        raise WrongUse("--resume: name the campaign's folder with --out DIR")
    if options.assume_gpus and not (options.dry_run or options.on):
        raise WrongUse("--assume-gpus: plans for GPUs that are elsewhere; add --dry-run")
    plan = campaign.prepare(suite, str(file), options.allow_dirty, cluster.assumed(options))
    folder = options.out or new_folder(file.stem)
    check = refuse_missing if options.resume else refuse_existing
    check(cluster.first_records(options, folder))
    lock.probe(folder)
    if options.dry_run:
        print_plan(plan)
        return
    if options.on:
        raise typer.Exit(cluster.submit(options, folder))
    work = execution_order(plan.trials, suite.processes, suite.seed)
    say(f"{suite.title or file.stem}: {progress.count(len(plan.trials), 'trial')}, "
        f"{progress.count(len(work), 'process', 'es')}{count_traces(plan)}, records in {folder}")
    with interruptible(folder, "--resume"), progress.page_beside(folder, options.live), \
            progress.Display(console, suite, work) as display, \
            EventFile(folder, suite.title or folder.name, display) as events:
        campaign.run(plan, folder, events, options.resume)
    if "failed" in _report([folder], folder):
        raise typer.Exit(1)


@app.command()
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

    out = out or (folders[0] if len(folders) == 1 else folders[0].parent / "report")
    if len(folders) > 1 or not (folders[0] / "study.json").is_file():
        _report(folders, out)
        return
    with writing(out):
        say(f"Page: {kinds.write(folders[0], out)}")


@app.command()
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
    _report([out], out)


@app.command()
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
    from harness.records import signature

    total = 0
    for folder in folders:
        findings = audit.audit(folder)
        name, fault = signature.signer(folder, signed_by) if signed_by else ("", "")
        if fault:
            findings.append(audit.Finding(
                signature.SIGNATURE, "", "", f"a signer of {signed_by}", fault))
        total += len(findings)
        say(f"{folder}: {f'{len(findings)} findings' if findings else 'all holds'}")
        for file, row, column, expected, found in findings:
            place = ", ".join(filter(None, [file, row, column]))
            say(f"  {place}: expected {expected or 'nothing'}, found {found or 'nothing'}")
        for remark in audit.remarks(folder):
            say(f"  remark: {remark}")
        signed = f"signed by {name}" if name else ""
        for note in filter(None, [signed, audit.unchecked(folder), audit.origin(folder)]):
            dim(f"  {note}")
    if total:
        raise typer.Exit(1)


@app.command()
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


@env_app.command("list")
def list_environments() -> None:
    """List the environments that exist."""
    from harness.environments import store

    table = Table("framework", "release", "device", "Python", "packages", "folder",
                  box=box.SIMPLE_HEAD, padding=0)
    table.columns[-1].overflow = "fold"
    for each in store.list_environments():
        table.add_row(each.framework, each.release, each.device, each.python,
                      str(len(each.packages)), escape(str(each.interpreter.parents[1])))
    none = f"No environments under {store.root()}: dlbench env build pytorch"
    console.print(table if table.row_count else none)


@env_app.command("build")
def build_environments(
    specs: Annotated[list[str], typer.Argument(metavar="FRAMEWORK[==RELEASE]...")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Build environments; one that exists is left as it is."""
    from harness.campaign.campaign import choose_device
    from harness.environments import recipes, store
    from harness.machine import hardware

    known([device], DEVICES, "--device")
    kind = choose_device(device, hardware.describe())
    for framework, release in [recipes.parse(spec) for spec in specs]:
        built = store.build(framework, release, kind, dim)
        say(f"{framework}=={release} ({kind}): {built.interpreter}")


@data_app.command("list")
def list_data() -> None:
    """List the real data sets and which of them are here."""
    from harness.data import data_sets

    for name in data_sets.names():
        source = data_sets.available(name)
        say(f"{name}: {source.text if source else 'not here: dlbench data fetch ' + name}")


@data_app.command("fetch")
def fetch_data(name: str) -> None:
    """Fetch a real data set from its publisher and check its SHA-256."""
    from harness.data import data_sets

    data_sets.fetch(name, dim)


def _report(folders: list[Path], out: Path) -> set[str]:
    """Write the report, print the table and the page's path; return the statuses of the rows."""
    from analysis.records import manifest, reader
    from analysis.report import report
    from analysis.trials import summary

    statuses = set()
    with writing(out):
        for folder in folders:
            campaign = reader.read(folder)
            console.print(report.terminal_table(campaign))
            statuses |= set(summary.summarise(campaign)["status"])
            if out == folder:
                summary.rewrite(folder)
        paths = report.write(folders, out)
        if out in folders:
            manifest.write_manifest(out)
    say(f"Page: {next(path for path in paths if path.suffix == '.html')}")
    return statuses


def _end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end the workers and keep finished results, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)


def main() -> None:
    """Run the command line; wrong use prints its message and exits with 2."""
    from analysis.records.reader import BadRecords

    _end_as_by_ctrl_c()
    # A crash in a native library, such as NVML, then prints where. It needs an open stderr.
    with suppress(RuntimeError, OSError, ValueError):
        faulthandler.enable()
    try:
        _refuse_odd_words(sys.argv[1:])
        _run_app()
    except (WrongUse, networks.UnknownNetwork, BadRecords) as error:
        _end(str(error))
    except OSError as error:
        if error.errno in lock.NO_ROOM:
            folder = tempfile.gettempdir()
            _end(f"{error.filename or folder}: {error.strerror}: make room there. Temporary files "
                 f"are in {folder}; TMPDIR names another folder. Finished processes are kept: "
                 "`dlbench run ... --out DIR --resume` goes on with them")
        if error.filename is None or error.filename2 is not None:
            raise
        _end(f"{error.filename}: {error.strerror}; name another file or folder")


# Reading the hints of all options takes longer than most refusals.
_whole_command = lru_cache(partial(typer.main.get_command, app))


def _run_app() -> None:
    """Run the command; its own refusals become one message too."""
    try:
        code = _whole_command()(standalone_mode=False, prog_name="dlbench")
    except typer.Abort:
        _end("stopped", 1)
    except Exception as error:
        # typer brings its own click, whose place differs from release to release.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError" and context:
            # With rich the help is printed already, and the message is empty.
            print(error.format_message(), end="")
            sys.exit(0)
        usage = f"\n{context.get_usage()}" if context else ""
        _end(f"{error.format_message()}{usage}")
    sys.exit(code or 0)


def _refuse_odd_words(words: list[str]) -> None:
    """Raise WrongUse for words that no option takes and that could not be shown in a message."""
    for number, word in enumerate(words, start=1):
        if len(word) > LONGEST_WORD:
            raise WrongUse(f"word {number} of the command line has {len(word):,} characters; "
                           f"at most {LONGEST_WORD:,} are read")
        if printable(word) != word or "\n" in word:
            raise WrongUse(f"word {number} of the command line, {brief(ascii(word), 60)}: "
                           "has characters that cannot be printed; remove them")


def _end(message: str, code: int = 2) -> NoReturn:
    Console(stderr=True).print(f"[bold red]dlbench:[/bold red] {escape(brief(message))}",
                               highlight=False, emoji=False, soft_wrap=True)
    sys.exit(code)
