"""The command line: each command reads its options, calls its package and prints.

Exit codes: 0 done; 1 the answer is no (a difference, failed rows); 2 wrong use or input, with one
message and no traceback.
"""

import faulthandler
import signal
import sys
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer
from rich.console import Console
from rich.markup import escape

import networks
from harness import VERSION
from harness.cli import cluster, explain, progress, publish, reports, setup
from harness.cli.comparisons import compare, track
from harness.cli.options import (
    Interpreter,
    RunOptions,
    command,
    folder_of,
    words,
)
from harness.cli.studies import pipelines, study
from harness.cli.terminal import console, interruptible, new_folder, say
from harness.environments.interpreters import named
from harness.errors import WrongUse, brief, printable
from harness.plan.parts import MOST_JOBS
from harness.records import lock

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False,
    help="Train the same networks in several frameworks, prove that they are the same, and time "
         "a mini-batch.")

LONGEST_WORD = 2000  # of the command line


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    networks: Annotated[str | None, typer.Option(
        help="Names with commas. Default: all published ones.")] = None
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
        if options.resume and not (options.on or options.assume_gpus):
            campaign.refuse_to_resume(plan, folder)
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
    if "failed" in reports.write_report([folder], folder):
        raise typer.Exit(1)


@command(app)
def verify(options: VerifyOptions) -> None:
    """Prove that frameworks train the same networks as the NumPy reference.

    Exit 1 if one is different or failed, or if none could be proven.
    """
    from harness.cli import verify

    wanted = {
        "frameworks": words(options.frameworks), "device": options.device,
        "networks": (networks.names(large=False) if options.networks is None
                     else words(options.networks)),
        "precisions": options.precision,
        "tunings": options.tuning, "mode": options.mode,
        "devices": [int(word) if word.removeprefix("-").isdecimal() else word
                    for word in words(options.devices)],
        "interpreters": named(options.interpreter)}
    if options.out:
        lock.probe_file("--out", options.out)
    rows = verify.verify(wanted, console, options.jobs, options.out)
    verdicts = {row["verdict"] for row in rows}
    if verdicts <= {"unsupported"}:
        say("Nothing was proven: no row can run here.")
    if verdicts <= {"unsupported"} or verdicts & {"different", "failed"}:
        raise typer.Exit(1)


# In the order of the help text: what a user needs first stands first.
app.command()(reports.report)
command(app)(explain.explain)
command(app)(compare.compare)
command(app)(compare.bisect)
command(app)(track.track)
app.command()(setup.doctor)
app.command("networks")(setup.show_networks)
app.command("frameworks")(setup.show_frameworks)
app.command()(setup.init)
app.command()(progress.live)
for each in (reports.audit, reports.sign, publish.publish, publish.pack, publish.export,
             reports.join):
    app.command()(each)
command(app, "slurm-script")(cluster.slurm_script)
app.add_typer(setup.env_app, name="env")
app.add_typer(setup.data_app, name="data")
app.add_typer(study.study_app, name="study")
study.study_app.command("scale")(cluster.scale)
command(study.study_app, "pipelines")(pipelines.study_pipelines)


def _end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end the workers and keep finished results, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)


def _print_in_any_encoding() -> None:
    """Let a terminal that lacks a character, as in `é.yaml`, show its escape code instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line; wrong use prints its message and exits with 2."""
    from analysis.records.text import BadRecords

    _end_as_by_ctrl_c()
    _print_in_any_encoding()
    if not sys.warnoptions:
        warnings.showwarning = _show_warning
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
            place = error.filename or f"the folder of the output, or {folder}"
            _end(f"{place}: {error.strerror}: make room there. Temporary files are in {folder}; "
                 "TMPDIR names another folder. A campaign keeps its finished processes: "
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
        if not word.strip(" ,"):
            raise WrongUse(f"word {number} of the command line, {word!r}: names nothing; write a "
                           "value, or leave the option before it out")
        if len(word) > LONGEST_WORD:
            raise WrongUse(f"word {number} of the command line has {len(word):,} characters; "
                           f"at most {LONGEST_WORD:,} are read")
        if printable(word) != word or "\n" in word:
            raise WrongUse(f"word {number} of the command line, {brief(ascii(word), 60)}: "
                           "has characters that cannot be printed; remove them")


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                  file: TextIO | None = None, line: str | None = None) -> None:
    """Print a warning as dlbench prints faults: without the source line that gave it."""
    print(f"dlbench: warning: {printable(str(message))}", file=file or sys.stderr)


def _end(message: str, code: int = 2) -> NoReturn:
    Console(stderr=True).print(f"[bold red]dlbench:[/bold red] {escape(brief(message))}",
                               highlight=False, emoji=False, soft_wrap=True)
    sys.exit(code)
