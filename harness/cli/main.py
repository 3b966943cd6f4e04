"""The command line: each verb reads its words, calls the folder that does the work, and prints.

Exit codes: 0 done, 1 the answer is no (a difference, failed rows), 2 wrong use or input, said in one message without a traceback.
"""

import errno
import faulthandler
import json
import shlex
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import networks
from harness.cli import compare, explain, publish, study
from harness.environments.interpreters import named
from harness.errors import WrongUse
from networks import UnknownNetwork, work

if TYPE_CHECKING:
    from harness.campaign.session import Plan

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Train the same networks in several frameworks, prove that they are the same, and time a mini-batch.")
env_app = typer.Typer(no_args_is_help=True, help="The frameworks' environments under .envs/.")
data_app = typer.Typer(no_args_is_help=True, help="Real data sets under $DLBENCH_DATA (default data/).")
app.add_typer(env_app, name="env")
app.add_typer(data_app, name="data")
app.add_typer(study.study_app, name="study")
app.command()(compare.compare)
app.command()(compare.bisect)
app.command()(explain.explain)
app.command()(publish.publish)
console = Console()

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a limit of the shell

Interpreters = Annotated[list[str] | None, typer.Option("--interpreter", metavar="FRAMEWORK=PATH",
                                                        help="An interpreter that has the framework already.")]


@app.command("networks")
def show_networks(name: Annotated[str | None, typer.Argument(help="One network: its layers.")] = None) -> None:
    """List the networks with their parameters and work, or print one network's layers."""
    console.print(_layers(networks.get(name)) if name else _catalogue())


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False) -> None:
    """Say what this machine is, which frameworks can run here, and what would make its numbers untrustworthy."""
    from harness.machine import doctor as examination

    found = examination.examine()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        examination.show(found, console)


@app.command()
def verify(
    chosen: Annotated[str, typer.Option("--networks", help="Names with commas; all published ones where not given.")] = "",
    frameworks_: Annotated[str, typer.Option("--frameworks", help="Names or releases with commas.")] = "pytorch,tensorflow",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.csv", help="Also write the verdicts here.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    tuning: Annotated[str, typer.Option(help="stock or tuned.")] = "stock",
    jobs: Annotated[int, typer.Option(min=1, help="Checks at a time.")] = 1,
    devices: Annotated[str, typer.Option(help="Devices that train together; several numbers with commas.")] = "1",
    interpreter: Interpreters = None,
) -> None:
    """Prove that frameworks train the same networks as the NumPy reference; exit 1 where one is different."""
    from harness.cli import verify as verification

    wanted = {"frameworks": _words(frameworks_), "networks": _words(chosen) or networks.names(), "device": device,
              "precisions": precision, "tunings": tuning, "devices": _words(devices), "interpreters": named(interpreter)}
    rows = verification.verify(wanted, console, jobs)
    if out:
        verification.write(rows, out)
    if any(row["verdict"] == "different" for row in rows):
        raise typer.Exit(1)


@app.command()
def run(
    suite_file: Annotated[Path, typer.Argument(metavar="SUITE.yaml")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in devices=1,2 batch=64.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: results/<suite>-<time>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the campaign in DIR.")] = False,
    allow_dirty: Annotated[bool, typer.Option("--allow-dirty", help="Measure on a GPU that others use or that is throttled; "
                                              "every row says so.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and an estimate of its time; start nothing.")] = False,
    interpreter: Interpreters = None,
) -> None:
    """Run a suite: a campaign with records, a table and a page."""
    from harness.campaign import campaign as campaigns
    from harness.cli.progress import Display, count
    from harness.plan.planner import execution_order
    from harness.plan.suite import load_suite

    suite = load_suite(suite_file, overrides)
    suite = suite.model_copy(update={"interpreters": {**suite.interpreters, **named(interpreter)}})
    if resume and out is None:
        raise WrongUse("--resume: name the campaign's folder with --out DIR")
    prepared = campaigns.prepare(suite, str(suite_file), allow_dirty)
    if dry_run:
        _print_plan(prepared)
        return
    folder = out or Path("results") / f"{suite_file.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    work_list = execution_order(prepared.trials, suite.processes, suite.seed)
    counts = f"{count(len(prepared.trials), 'trial')}, {count(len(work_list), 'process', 'es')}{_looks(prepared)}"
    console.print(f"{suite.title or suite_file.stem}: {counts}, records in {folder}", markup=False, highlight=False, soft_wrap=True)
    try:
        with Display(console, suite, work_list) as display:
            campaigns.run(prepared, folder, display, resume)
    except KeyboardInterrupt:
        words = [*(overrides or []), *(["--allow-dirty"] if allow_dirty else [])]
        again = _resumption(suite_file, words, interpreter, folder)
        console.print(f"\nStopped; every finished process is kept. Go on with: {again}",
                      markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    statuses = _report([folder], folder)
    if "failed" in statuses:
        raise typer.Exit(1)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaigns, as `dlbench run` wrote them.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR",
                                             help="Default: the campaign's folder; of several, `report` beside the first.")] = None,
) -> None:
    """Make tables, plots and a page from campaigns' records."""
    _report(folders, out or (folders[0] if len(folders) == 1 else folders[0].parent / "report"))


@app.command()
def audit(folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaigns, as published.")]) -> None:
    """Derive every published number from the raw records again, check hashes and records; exit 1 where something does not fit."""
    from analysis.audit import audit as auditing

    found = 0
    for folder in folders:
        findings = auditing.audit(folder)
        found += len(findings)
        _say(f"{folder}: {f'{len(findings)} findings' if findings else 'all holds'}")
        for file, row, column, expected, present in findings:
            place = ", ".join(filter(None, [file, row, column]))
            _say(f"  {place}: expected {expected or 'nothing'}, found {present or 'nothing'}")
        for note in filter(None, [auditing.unchecked(folder), auditing.origin(folder)]):
            _dim(f"  {note}")
    if found:
        raise typer.Exit(1)


@env_app.command("list")
def env_list() -> None:
    """List the environments that exist."""
    from harness.environments import store

    table = Table("framework", "release", "device", "Python", "packages", "folder")
    for each in store.list_environments():
        folder = str(each.interpreter.parents[1])
        table.add_row(each.framework, each.release, each.device, each.python, str(len(each.packages)), folder)
    console.print(table if table.row_count else f"No environments under {store.root()}: dlbench env build pytorch")


@env_app.command("build")
def env_build(
    specs: Annotated[list[str], typer.Argument(metavar="FRAMEWORK[==RELEASE]...")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Build environments; one that exists is left as it is."""
    from harness.campaign.campaign import choose_device
    from harness.environments import recipes, store
    from harness.machine import hardware

    kind = choose_device(device, hardware.describe())
    for framework, release in [recipes.parse(spec) for spec in specs]:
        built = store.build(framework, release, kind, _dim)
        console.print(f"{framework}=={release} ({kind}): {built.interpreter}", highlight=False, soft_wrap=True)


@data_app.command("list")
def data_list() -> None:
    """List the real sets and what of them is here."""
    from harness.data import data_sets

    for name in data_sets.names():
        source = data_sets.available(name)
        console.print(f"{name}: {source.text if source else 'not here: dlbench data fetch ' + name}", highlight=False)


@data_app.command("fetch")
def data_fetch(name: str) -> None:
    """Fetch a real set from its publisher and check its SHA-256."""
    from harness.data import data_sets

    data_sets.fetch(name, _dim)


def _report(folders: list[Path], out: Path) -> set[str]:
    """Write the report, print the table and the page's path; return the statuses that occur."""
    from analysis.records import manifest, reader
    from analysis.report import report
    from analysis.trials import summary

    statuses = set()
    try:
        for folder in folders:
            campaign = reader.read(folder)
            console.print(report.terminal_table(campaign))
            statuses |= set(summary.summarise(campaign)["status"])
            if out == folder:
                summary.rewrite(folder)
        paths = report.write(folders, out)
        if out in folders:
            manifest.write_manifest(out)
    except OSError as error:
        raise WrongUse(f"{error.filename or out}: {error.strerror}; name another folder with --out") from None
    page = next(path for path in paths if path.suffix == ".html")
    console.print(f"Page: {page}", highlight=False, soft_wrap=True)
    return statuses


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _dim(text: str) -> None:
    console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def _resumption(suite_file: Path, overrides: list[str] | None, interpreter: list[str] | None, folder: Path) -> str:
    options = [word for pair in interpreter or [] for word in ("--interpreter", pair)]
    return shlex.join(["dlbench", "run", str(suite_file), *(overrides or []), *options, "--out", str(folder), "--resume"])


def _print_plan(prepared: "Plan") -> None:
    from harness.cli.progress import count, duration
    from harness.plan.planner import estimate_seconds, shares_cores

    table = Table("framework", "network, batch", "on", "how", "time", box=box.SIMPLE)
    total, refused, cores = 0.0, Counter[str](), prepared.machine["cpu"]["allowed"]
    for trial in prepared.trials:
        if trial.status != "planned":
            refused[trial.reason] += 1
            continue
        seconds = prepared.suite.processes * estimate_seconds(trial, prepared.suite)
        total += seconds
        where = f"{trial.devices} x cuda" if trial.device_kind == "cuda" else f"{trial.devices} x cpu, threads {trial.threads}"
        where += f", {trial.strategy}" if trial.strategy else ""
        if shares_cores(trial, cores):
            where += f", sharing {count(cores, 'core')}"
        table.add_row(f"{trial.framework} {trial.release}", f"{trial.network}, {trial.batch}", where,
                      f"{trial.precision} {trial.tuning} {trial.data}", duration(seconds))
    console.print(table)
    for reason, times in refused.items():
        console.print(f"{times} refused: {reason}", style="yellow", markup=False, highlight=False)
    size = f"{count(len(prepared.trials), 'trial')}, {count(prepared.suite.processes, 'process', 'es')} each{_looks(prepared)}"
    wanted = f"about {duration(total)} once the environments are built" if total else "all refused"
    console.print(f"{size}, {wanted}. Nothing was started.", soft_wrap=True)


def _looks(prepared: "Plan") -> str:
    """How many traces and profiles a campaign makes beside its processes, each in a worker of its own."""
    from harness.campaign import profiling, tracing
    from harness.cli.progress import count

    planned = [trial for trial in prepared.trials if trial.status == "planned"]
    wanted = {"trace": sum(tracing.wanted(prepared.suite, trial) for trial in planned),
              "profile": sum(profiling.wanted(prepared.suite, trial) and trial.devices == 1 for trial in planned)}
    return "".join(f", {count(number, what)}" for what, number in wanted.items() if number)


def _catalogue() -> Table:
    table = Table("network", "what it is", "parameters", "forward\nmillion MACs", "backward\nmillion MACs",
                  "activations\nMB a sample", "data", "batches")
    for column in table.columns[2:6]:
        column.justify = "right"
    for name in [*networks.names(), *networks.names(small=True)]:
        network = networks.get(name)
        counts = work.multiply_adds(network).values()
        table.add_row(name, network.title, f"{network.parameter_count:,}", f"{sum(f for f, _ in counts) / 1e6:,.4g}",
                      f"{sum(b for _, b in counts) / 1e6:,.4g}", f"{work.activation_bytes(network) / 1e6:.3g}", network.data_set,
                      " ".join(map(str, network.batches)))
    return table


def _layers(network: networks.Network) -> Table:
    table = Table("layer", "operation", "inputs", "attributes", "output", "parameters", "million MACs\nforward", "backward",
                  title=f"{network.name}: {network.title}")
    for column in table.columns[5:]:
        column.justify = "right"
    counts = work.multiply_adds(network)
    for layer in network.layers:
        forward, backward = counts[layer.name]
        attributes = " ".join(f"{key}={value}" for key, value in layer.attributes.items())
        table.add_row(layer.name, layer.op, " ".join(layer.inputs), attributes, " x ".join(map(str, layer.output_shape)),
                      f"{layer.parameter_count:,}" if layer.parameter_count else "", f"{forward / 1e6:,.4g}" if forward else "",
                      f"{backward / 1e6:,.4g}" if backward else "")
    table.add_row("[bold]total", "", "", "", "", f"{network.parameter_count:,}", f"{sum(f for f, _ in counts.values()) / 1e6:,.4g}",
                  f"{sum(b for _, b in counts.values()) / 1e6:,.4g}")
    return table


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _end_as_by_ctrl_c() -> None:
    """Let the signals of `kill` and of a closed terminal end the workers, keep what is finished and clear away, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)


def main() -> None:
    """Run the command line; wrong use ends with its message and 2."""
    from analysis.records.reader import BadRecords

    _end_as_by_ctrl_c()
    with suppress(RuntimeError, OSError, ValueError):  # where nobody listens on stderr
        faulthandler.enable()  # a crash within a native library, NVML's say, tells where
    try:
        app()
    except (WrongUse, UnknownNetwork, BadRecords) as error:
        _end(str(error))
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        folder = tempfile.gettempdir()
        _end(f"{error.filename or folder}: {error.strerror}: make room there. Temporary files lie in {folder}, and TMPDIR names "
             "another folder. Finished processes are kept: `dlbench run ... --out DIR --resume` goes on with them")


def _end(message: str) -> None:
    Console(stderr=True).print(f"[bold red]dlbench:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)
