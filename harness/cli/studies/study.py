"""`dlbench study`: experiments on single operations and on the links between devices."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import networks
from analysis.records import manifest, packed, reader, study_reader
from harness.cli.options import (
    LONGEST_WINDOW,
    MOST_COUNT,
    MOST_GFLOP,
    Campaigns,
    Measuring,
    Processes,
    WindowSeconds,
    command,
    finite,
    folder_of,
    numbers,
    words,
)
from harness.cli.terminal import Notes, interruptible, new_folder, say
from harness.cluster.options import MOST_NODES
from harness.environments.interpreters import named
from harness.errors import WrongUse
from harness.plan.parts import MOST_THREADS
from harness.studies import aggregation, attention, conv, gemm, layers
from harness.studies.recorder import StudyRecorder, merge
from harness.studies.study import Effort, Place, Study, known, place_of, plan, run

Batch = Annotated[int | None, typer.Option(
    min=1, max=MOST_COUNT, help="Default: the campaign's, else the middle one of the network's.")]
FewerOnCpu = Annotated[int | None, typer.Option(
    min=1, max=MOST_COUNT, help="Repetitions in new processes; an interval needs three or more. "
    "Default: 3, on a CPU 1.")]
study_app = typer.Typer(no_args_is_help=True, help="Time single operations, links and pipelines.")


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Measuring):
    """Options of every study."""

    processes: Processes = 3
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class OperationOptions(StudyOptions):
    """Options of every study of operations."""

    threads: Annotated[int | None, typer.Option(
        min=1, max=MOST_THREADS, help="Of a worker on a CPU. Default: all cores.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the study in DIR.")] = False

    def place(self, frameworks: Sequence[str], mode: str = "training") -> Place:
        if self.resume and not self.out:
            raise WrongUse("--resume: name the folder of the study with --out")
        planned = plan(frameworks, self.device, named(self.interpreter), self.allow_dirty,
                       threads=self.threads or "all", title="Operations", mode=mode)
        return place_of(planned, self.threads)


@dataclass(frozen=True, kw_only=True)
class GemmOptions(OperationOptions):
    networks: Annotated[str, typer.Option(
        help="With commas. Default: all; `none` for the article's product alone.")] = ""
    precisions: Annotated[str, typer.Option(
        help="With commas. Default: fp32,tf32,bf16,fp16, on a CPU fp32.")] = ""
    batch: Batch = None
    largest: Annotated[float | None, typer.Option(
        metavar="GFLOP", min=0, max=MOST_GFLOP, callback=finite,
        help="Leave larger products out. Default on a CPU: 5, except for the article's.")] = None
    campaigns: Campaigns = None
    window_seconds: WindowSeconds = 0.002


@dataclass(frozen=True, kw_only=True)
class ConvOptions(OperationOptions):
    networks: Annotated[str, typer.Option(
        help="With commas. Default: alexnet, caffenet and googlenet.")] = ""
    sweep: Annotated[bool, typer.Option(
        "--sweep", help="fbcunn's sweep of 8,232 layers instead of networks.")] = False
    sample: Annotated[int | None, typer.Option(
        min=1, max=MOST_COUNT, help="Only so many layers of the sweep, drawn by a seed.")] = None
    part: Annotated[str, typer.Option(
        metavar="I/N", help="Only the I-th of N parts, to use several devices.")] = "1/1"
    passes: Annotated[str, typer.Option(help="With commas.")] = ",".join(conv.PASSES)
    math: Annotated[str, typer.Option(help="fma, tf32 or both; on a CPU only fma.")] = ""
    batch: Batch = None
    largest: Annotated[float | None, typer.Option(
        metavar="GFLOP", min=0, max=MOST_GFLOP, callback=finite,
        help="Leave larger ones out. Default on a CPU: 5.")] = None
    campaigns: Campaigns = None
    processes: Processes = 1
    window_seconds: Annotated[float | None, typer.Option(
        min=0, max=LONGEST_WINDOW, callback=finite,
        help="Length of a timed window. Default: 0.002, in a sweep 0.0005.")] = None
    windows: Annotated[int, typer.Option(
        min=1, max=MOST_COUNT, help="Timed windows of an algorithm.")] = 3


@dataclass(frozen=True, kw_only=True)
class LayersOptions(OperationOptions):
    frameworks: Annotated[str, typer.Option(help="With commas.")] = ",".join(layers.FRAMEWORKS)
    precisions: Annotated[str, typer.Option(
        help="With commas. Default: fp32,fp16, on a CPU fp32.")] = ""
    layouts: Annotated[str, typer.Option(help="With commas.")] = ",".join(layers.LAYOUTS)
    layers: Annotated[str, typer.Option(help="With commas. Default: all.")] = ""
    batch: Annotated[int | None, typer.Option(
        min=2, max=MOST_COUNT, help="Default: the layer's own; on a CPU a sixteenth of it.")] = None
    window_seconds: WindowSeconds = 0.01


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(OperationOptions):
    frameworks: Annotated[str, typer.Option(help="With commas.")] = ",".join(attention.FRAMEWORKS)
    lengths: Annotated[str, typer.Option(
        help="Tokens of a sequence. Default: 1024,4096,8192, on a CPU 128,512.")] = ""
    causal: Annotated[str, typer.Option(help="no, yes or no,yes.")] = "no,yes"
    widths: Annotated[str, typer.Option(
        help="Values of a head; the first is the base. Default: 64,128, on a CPU 64.")] = ""
    heads: Annotated[str, typer.Option(
        help="The first is the base. Default: 16,12,32, on a CPU 4,12.")] = ""
    precisions: Annotated[str, typer.Option(
        help="The first is the base. Default: bf16,fp32,tf32,fp16, on a CPU fp32.")] = ""
    passes: Annotated[str, typer.Option(help="With commas.")] = ",".join(attention.PASSES)
    full: Annotated[bool, typer.Option(
        "--full", help="Cross all lists, instead of one list at a time around the bases.")] = False
    batch: Annotated[int | None, typer.Option(
        min=1, max=MOST_COUNT, help="Default: for 8192 tokens in all, on a CPU 512.")] = None
    processes: FewerOnCpu = None  # type: ignore[assignment]
    window_seconds: WindowSeconds = 0.01


@dataclass(frozen=True, kw_only=True)
class AggregationOptions(StudyOptions):
    campaigns: Annotated[list[Path] | None, typer.Argument(
        metavar="[CAMPAIGN]...", parser=folder_of,
        help="Recorded campaigns on several devices, whose aggregation is to be explained.")] = None
    devices: Annotated[str, typer.Option(
        help="Numbers of devices with commas. Default: 1, 2, 4 ... of those here.")] = ""
    nodes: Annotated[int, typer.Option(
        min=1, max=MOST_NODES, help="Also the links between so many nodes of a Slurm allocation.")
    ] = 1
    windows: Annotated[int, typer.Option(
        min=1, max=MOST_COUNT, help="Timed windows of a transfer in a process.")] = 5
    window_seconds: WindowSeconds = 0.02
    largest: Annotated[int | None, typer.Option(
        min=1, max=2**20, metavar="MIB",
        help="Largest transfer. Default: 256 between GPUs, 64 on a CPU.")] = None
    links: Annotated[str, typer.Option(help="With commas. Default: all.")] = ""
    again: Annotated[Path | None, typer.Option(
        "--again", metavar="DIR", help="Measure nothing: derive the study in DIR again from its "
        "links, with these campaigns.")] = None


@command(study_app, "gemm")
def study_gemm(options: GemmOptions) -> None:
    """Time NN, NT, TN, TT and transpose-then-multiply for every matrix product of the networks."""
    place, campaigns = options.place(["pytorch"]), options.campaigns or []
    names = words(options.networks) or networks.names(large=False)
    batches = gemm.batches_of(names, options.batch, campaigns)
    effort = Effort(options.processes, window_seconds=options.window_seconds, once_seconds=0.1)
    study = gemm.study_of(place.device_kind, batches, words(options.precisions), options.largest,
                          effort)
    measure(study, place, options, "products", campaigns)


@command(study_app, "conv")
def study_conv(options: ConvOptions) -> None:
    """Time every convolution algorithm, with its workspace and its error against float64."""
    place, campaigns = options.place(["pytorch"]), options.campaigns or []
    cpu, sweep, batches = place.device_kind == "cpu", options.sweep, {}
    if sweep:
        shapes = conv.sweep_layers(options.sample or (conv.SAMPLE_CPU if cpu else None))
    else:
        names = words(options.networks) or conv.NETWORKS
        batches = gemm.batches_of(names, options.batch, campaigns)
        shapes = conv.network_layers(batches)
    largest = options.largest or (conv.LARGEST_CPU_GFLOP if cpu else None)
    maths = words(options.math) or conv.MATHS[:1 if cpu or sweep else 2]
    points = conv.points_of(shapes, known(words(options.passes), conv.PASSES, "--passes"),
                            known(maths, conv.MATHS, "--math"), largest)
    bench = conv.bench_of(conv.part_of(points, options.part), place.device_kind)
    seconds = options.window_seconds or conv.WINDOW_SECONDS[sweep]
    effort = Effort(options.processes, options.windows, seconds, conv.ONCE_SECONDS[sweep])
    settings = {"batches": batches, "sweep": sweep, "sample": options.sample,
                "part": options.part, "largest_gflop": largest}
    study = Study("conv", [bench], effort, settings, conv.tolerance_of)
    measure(study, place, options, "convolutions", campaigns)


@command(study_app, "layers")
def study_layers(options: LayersOptions) -> None:
    """Time single layers in each framework, forward and backward, in each layout and precision.

    Outputs and gradients are checked first.
    """
    frameworks = layers.known_frameworks(words(options.frameworks))
    place = options.place(frameworks)
    precisions = words(options.precisions) or layers.PRECISIONS[:1 if place.device_kind == "cpu"
                                                                else 2]
    points = layers.points_of(words(options.layers) or list(layers.LAYERS),
                              words(options.layouts), precisions)
    points = layers.resize(points, options.batch, place.device_kind)
    effort = Effort(options.processes, window_seconds=options.window_seconds)
    benches = [layers.bench_of(name, points, place.threads) for name in frameworks]
    study = Study("layers", benches, effort, {"refused": layers.REFUSED}, layers.tolerance_of)
    measure(study, place, options, f"layers in {len(benches)} frameworks")


@command(study_app, "attention")
def study_attention(options: AttentionOptions) -> None:
    """Time each framework's implementations of attention, forward and backward.

    Results are checked first, and the kernels' names afterwards.
    """
    frameworks = known(words(options.frameworks), attention.FRAMEWORKS, "--frameworks")
    place = options.place(frameworks)
    given: dict[str, Any] = {
        name: numbers(getattr(options, name), f"--{name}")
        for name in ("lengths", "widths", "heads")}
    given["precisions"] = words(options.precisions)
    grid = replace(attention.DEFAULT[place.device_kind], masks=words(options.causal),
                   passes=words(options.passes), batch=options.batch, full=options.full,
                   **{name: values for name, values in given.items() if values})
    points = attention.points_of(grid)
    processes = options.processes or (1 if place.device_kind == "cpu" else 3)
    effort = Effort(processes, window_seconds=options.window_seconds)
    with tempfile.TemporaryDirectory(prefix="dlbench-attention-") as kept:
        benches = [attention.bench_of(name, points, place, kept) for name in frameworks]
        study = Study("attention", benches, effort, {"base": points[0]["point"]},
                      attention.tolerance_of, attention.fault_of_calls)
        measure(study, place, options, f"settings in {len(benches)} frameworks")


@command(study_app, "aggregation")
def study_aggregation(options: AggregationOptions) -> None:
    """Fit latency and bandwidth of this machine's links, and predict each aggregation strategy."""
    campaigns = options.campaigns or []
    if options.again:
        _refuse_measuring(options)
        _derive(options.again, campaigns)
        return
    effort: dict[str, Any] = {"processes": options.processes, "windows": options.windows}
    # A suite's window is longer than 0.
    suite_effort = {**effort, "window_seconds": options.window_seconds or 1e-6}
    folder = options.out or new_folder("aggregation")
    if os.path.lexists(folder / "study.json"):
        raise WrongUse(f"{folder} holds a study already: name another folder with --out, "
                       f"or derive it again with --again {folder}")
    planned = aggregation.plan(options.devices, options.device, named(options.interpreter),
                               options.allow_dirty, suite_effort, options.nodes, campaigns)
    _refuse_forced_wire(planned.device_kind)
    # Such a campaign would end the study after everything is measured.
    _refuse_useless(campaigns, planned.device_kind)
    largest = options.largest or aggregation.LARGEST_MIB[planned.device_kind]
    groups = len(aggregation.groups_of(planned.trials))
    chosen = known(words(options.links), study_reader.LINKS, "--links")
    say(f"{groups} groups of devices in {options.processes} processes, records in {folder}")
    aggregation.run(planned, aggregation.Effort(
        **effort, window_seconds=options.window_seconds, largest_bytes=largest * 2**20,
        links=tuple(chosen)), folder, Notes())
    _derive(folder, campaigns)


@study_app.command("show")
def show_study(
    folders: Annotated[list[Path], typer.Argument(
        metavar="DIR...", parser=folder_of,
        help="A study's folder; of a study in parts, all folders.")],
    campaigns: Campaigns = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", parser=folder_of,
        help="Of several parts: the folder of the whole.")] = None,
) -> None:
    """Make the page of a recorded study again, for example with the kernels of a later campaign."""
    from analysis.studies import kinds

    target = out or folders[0]
    if len(folders) > 1:
        if target in folders:
            raise WrongUse("several parts: name the folder of the whole with --out")
        merge(folders, target)
    elif target != folders[0]:
        raise WrongUse(f"--out {target}: a study's page stays beside its records; omit --out")
    say(f"Page: {kinds.write(target, target, campaigns or [])}")


def measure(study: Study, place: Place, options: OperationOptions, noun: str,
            campaigns: Sequence[Path] = ()) -> None:
    """Run a study of operations and write its page."""
    from analysis.studies import kinds

    folder = options.out or new_folder(study.name)
    points = {point["point"] for bench in study.benches for point in bench.points}
    if not points:
        raise WrongUse(f"no {noun} are left to time: --largest leaves all of them out; name a "
                       "larger one, or a smaller --batch")
    say(f"{len(points)} {noun} in {study.effort.processes} processes, "
        f"records in {folder}")
    with interruptible(folder, "--resume"):
        run(study, place, folder, options.resume, Notes())
    say(f"Page: {kinds.write(folder, folder, campaigns)}")


def _refuse_measuring(options: AggregationOptions) -> None:
    """Raise WrongUse for options that --again would ignore."""
    default = AggregationOptions()
    given = [f"--{key.replace('_', '-')}" for key, value in vars(options).items()
             if key not in ("again", "campaigns") and value != getattr(default, key)]
    if given:
        raise WrongUse(f"--again derives a study in its own folder and measures nothing, so "
                       f"{', '.join(given)} cannot go with it: omit that, or derive a copy")


def _derive(folder: Path, campaigns: Sequence[Path]) -> None:
    """Write the fits, predictions and page of a measured study of aggregation."""
    from analysis.aggregation import report

    if not os.path.isfile(folder / "study.json") or not packed.find(folder / "links.csv").exists():
        raise WrongUse(f"{folder}: no study of aggregation; "
                       "name a folder that `dlbench study aggregation` wrote")
    recorder = StudyRecorder(folder)
    _refuse_useless(campaigns, recorder.meta()["trials"][0]["device_kind"])
    recorder.update(recorded=[each.name for each in campaigns])
    say(f"Page: {report.write(folder, campaigns)}")
    manifest.write_manifest(folder)


def _refuse_forced_wire(device_kind: str) -> None:
    """Raise WrongUse if a variable already forbids direct transfers between GPUs."""
    from analysis.aggregation import predictions

    if device_kind == "cuda" and (name := predictions.forced_apart(os.environ)):
        raise WrongUse(f"{name}={os.environ[name]} keeps the GPUs apart, but the study itself "
                       f"measures with and without direct transfers: unset {name}")


def _refuse_useless(campaigns: Sequence[Path], device_kind: str) -> None:
    """Raise WrongUse or BadRecords for a campaign that these links do not explain."""
    from analysis.aggregation import predictions

    for folder in campaigns:
        kinds = {trial["device_kind"] for trial in predictions.several(reader.read(folder))}
        if not kinds:
            raise WrongUse(f"{folder}: no row on several devices ended well, so there is no "
                           "aggregation to explain; name a campaign with devices=2 or more")
        if kinds != {device_kind}:
            raise WrongUse(f"{folder}: it ran on several devices of {', '.join(sorted(kinds))}, "
                           f"and these links are those of {device_kind}; "
                           "name a campaign of the same machine")
