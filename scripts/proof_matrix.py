"""Prints which faulty runners the proof of sameness refuses: fault x network x precision.

Each fault of tests/faults/training/ is judged in a worker of its framework, on the networks that
can have it. A fault that passes shows the strength that the row states. What the CSV already holds
is not judged again, so a run that was ended goes on. Run it from the checkout:
.venv/bin/python scripts/proof_matrix.py --networks fcn5 lstm32 --precisions fp32 bf16 --csv out.csv
"""

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain, product
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import networks  # noqa: E402
from harness.environments import recipes, store  # noqa: E402
from harness.proof.judge import Judge  # noqa: E402
from harness.proof.verdict import Verdict  # noqa: E402
from harness.workers.worker import Failed, Worker  # noqa: E402
from runners.protocol import TIERS  # noqa: E402
from tests.faults import training  # noqa: E402

HOST = "tests.faults.host"
HONEST = "none"
LIMIT = 600  # seconds for one answer

# The first five columns, which say what is judged.
Setting = tuple[str, str, str, int, str]


@dataclass(frozen=True)
class Row:
    framework: str
    network: str
    precision: str
    seed: int
    fault: str
    verdict: str
    strength: str
    reason: str
    seconds: float
    limit_share: float  # the largest error as a share of what was allowed

    @property
    def setting(self) -> Setting:
        return self.framework, self.network, self.precision, self.seed, self.fault

    @property
    def outcome(self) -> str:
        if self.verdict == "different":
            return f"refused: {self.reason}"
        return " ".join(filter(None, [self.verdict, self.strength, self.reason]))


def main(words: Sequence[str] | None = None) -> int:
    """Judge, print, and write the CSV; 1 if an honest runner was refused."""
    options = _arguments(words)
    console = Console(width=options.width or None)
    rows = _recorded(options.csv)
    with options.csv.open("a", newline="") as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.writer(file)
        if not rows:
            writer.writerow(field.name for field in fields(Row))
        done = {row.setting for row in rows}
        for row in chain(*(_judged(options, seed, Path(folder), done) for seed in options.seeds)):
            rows.append(row)
            writer.writerow(astuple(row))
            file.flush()
            console.print(f"{row.framework} {row.network} {row.precision} {row.seed} {row.fault}: "
                          f"{row.outcome} ({row.seconds:.1f} s)", highlight=False, markup=False)
    console.print(_table(rows))
    refused = [row for row in rows if row.fault == HONEST and row.verdict != "same"]
    return 1 if refused else 0


def _recorded(file: Path) -> list[Row]:
    """Read the rows of an earlier run, none where the CSV is missing or empty."""
    if not file.exists():
        return []
    with file.open(newline="") as text:
        return [Row(**{**row, "seed": int(row["seed"]), "seconds": float(row["seconds"]),
                       "limit_share": float(row["limit_share"])})
                for row in csv.DictReader(text)]


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--frameworks", nargs="+", default=["pytorch"], metavar="NAME")
    add("--networks", nargs="+", default=networks.names(small=True), metavar="NAME")
    add("--precisions", nargs="+", default=["fp32", "bf16"], metavar="NAME")
    add("--faults", nargs="+", default=[HONEST, *training.FAULTS], metavar="NAME")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--tuning", choices=TIERS, default="stock")
    add("--threads", type=int, default=1)
    add("--samples", type=int, default=2, help="different samples of a batch (default: 2)")
    add("--batch", type=int, default=0, help="samples of a batch (default: twice --samples)")
    add("--between", type=int, default=24, help="steps between two proofs (default: 24)")
    add("--seeds", nargs="+", type=int, default=[1], metavar="NUMBER",
        help="of the weights and samples")
    add("--python", nargs="*", default=[], metavar="FRAMEWORK=PATH",
        help="interpreters that have a framework (default: dlbench's environments)")
    add("--csv", type=Path, default=Path("proof-matrix.csv"))
    add("--width", type=int, default=0, help="columns of the terminal")
    return parser.parse_args(words)


def _judged(options: argparse.Namespace, seed: int, folder: Path,
            done: Collection[Setting]) -> Iterator[Row]:
    """Judge each fault on the networks that can have it; a worker serves until a fault kills it."""
    # A judge takes the weights that its folder holds.
    folder = folder / str(seed)
    folder.mkdir()
    judge = Judge(folder, samples=options.samples, steps=2, seed=seed, limit=LIMIT)
    for framework, precision in product(options.frameworks, options.precisions):
        task = {"device": options.device, "devices": 1, "threads": options.threads,
                "precision": precision, "tuning": options.tuning}
        worker = None
        for name, fault in product(options.networks, options.faults):
            network = networks.get(name)
            if (framework, name, precision, seed, fault) in done or not training.applies(
                    fault, {layer.op for layer in network.layers}):
                continue
            runner = recipes.load(framework).runner if fault == HONEST else (
                f"tests.faults.training:{framework}.{fault}")
            began = time.monotonic()
            worker = worker or _started(framework, options, precision, folder)
            try:
                worker.ask("host", LIMIT, name=runner)
                worker.ask("hello", LIMIT)
                verdict = judge.judge(worker, network, task, options.batch, options.between)
            except Failed as failure:
                verdict = Verdict("different", str(failure), failure=failure.kind)
            # A worker that broke shows nothing of the proof.
            if verdict.failure:
                worker.end()
                worker = None
            yield Row(framework, name, precision, seed, fault, verdict.failure or verdict.verdict,
                      _words(verdict), verdict.reason, round(time.monotonic() - began, 1),
                      float(f"{verdict.limit_share:.3g}"))
        if worker:
            worker.finish()


def _words(verdict: Verdict) -> str:
    strength = verdict.strength
    return (f"rate {strength.rate:.2g}, frozen {strength.frozen:.2g}, "
            f"gradient {strength.gradient:.2g}")


def _started(framework: str, options: argparse.Namespace, precision: str, folder: Path) -> Worker:
    device = "gpu" if options.device == "cuda" else "cpu"
    given = dict(each.split("=", 1) for each in options.python)
    if framework in given:
        environment = store.existing(framework, Path(given[framework]), device)
    elif found := store.find(framework, recipes.load(framework).default, device):
        environment = found
    else:
        raise SystemExit(f"no environment for {framework}: dlbench env build {framework}")
    variables = {**environment.variables, "OMP_NUM_THREADS": str(options.threads)}
    if options.device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    elif precision == "fp32":
        variables["NVIDIA_TF32_OVERRIDE"] = "0"
    log = folder / f"{framework}-{precision}.log"
    return Worker(environment.interpreter, HOST, log, variables)


def _table(rows: Sequence[Row]) -> Table:
    """Return a row for each fault, and a column for each framework, network and precision.

    A cell has the worst of all seeds: a fault that passed, or an honest runner that was refused.
    """
    columns = sorted({(row.framework, row.network, row.precision) for row in rows})
    ordered = sorted(rows, key=lambda row: (row.verdict == "different") == (row.fault == HONEST))
    cells = {(row.fault, row.framework, row.network, row.precision): row for row in ordered}
    table = Table("fault", *("\n".join(column) for column in columns))
    for fault in dict.fromkeys(row.fault for row in rows):
        found = [cells.get((fault, *column)) for column in columns]
        table.add_row(fault, *(_cell(row) for row in found))
    return table


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    return "refused" if row.verdict == "different" else row.verdict


if __name__ == "__main__":
    sys.exit(main())
