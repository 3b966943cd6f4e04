"""Who may import whom: folders, then packages within them.

The test reads imports from the source, so an import inside a function counts too.
"""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
OURS = {"networks", "runners", "harness", "analysis"}
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "jaxlib", "paddle", "mxnet", "cntk", "caffe",
              "onnxruntime", "openvino", "onnx"}

# The folders of ours that a folder may import.
ALLOWED = {
    "networks": {"networks"},
    "runners": {"runners"},
    "analysis": {"analysis", "networks"},
    "harness": {"harness", "networks", "runners", "analysis"},
}

# Packages from low to high: a package may import those on earlier lines, never one on its own line.
ORDER = {
    "harness": ["errors", "plain_yaml", "validation", "cluster data environments records", "plan", "workers",
                "machine proof", "inference", "accuracy", "telemetry", "campaign", "comparison live studies", "cli",
                "start"],
    "analysis": ["statistics strategies traces", "records", "proof", "trials", "display", "explain", "report",
                 "compare aggregation studies", "audit site"],
}
# Writing reports is the command line's job. The rest of the driver reads records and counts.
ANALYSIS_FOR_HARNESS = {"analysis.statistics", "analysis.strategies", "analysis.traces",
                        "analysis.records", "analysis.proof", "analysis.trials"}
# From low to high: the contract, files of arrays and what compares them, the tracer, what a process
# has used, the commands, the wire, the start of a worker.
WORKER = ["runners", "runners.protocol", "runners.arrays", "runners.comparisons", "runners.tracer",
          "runners.resources", "runners.session", "runners.scenarios", "runners.inference",
          "runners.wire", "runners.__main__"]
# A framework's package may import these beside itself.
RUNNERS_FOR_ALL = {"runners.protocol", "runners.arrays", "runners.inference", "runners.onnx", "runners.int8",
                   "runners.divisible"}
# TensorFlow's models are Keras's, and so are those of the rows of Keras on other backends. Flax and
# Equinox, and Keras on JAX, find their device as JAX does. XLA compiles for TensorFlow as for JAX.
OF_OTHERS = {("runners.tensorflow", "runners.keras"), ("runners.tensorflow", "runners.jax"), ("runners.flax", "runners.jax"),
             ("runners.equinox", "runners.jax"), ("runners.keras", "runners.jax")}
RUNNERS_FOR_STUDIES = {*RUNNERS_FOR_ALL, "runners.tracer", "runners.session", "runners.wire",
                       "runners.pytorch", "runners.reference", "runners.tensorflow",
                       "runners.onnxruntime"}


@cache
def modules_named(source: str, package: str) -> set[str]:
    """Return the full name of every module that `source`, a module of `package`, imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            kept = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(kept if node.level else []), *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            # A computed name is the protocol's way to load a runner, so only literals count.
            found |= {str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant)}
    return found


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return getattr(node.func, "id", "")


def folder_violations(source: str, package: str) -> set[str]:
    """Return the imports of `source` that its folder may not make."""
    folder = package.split(".")[0]
    found = set()
    for module in modules_named(source, package):
        top = module.split(".")[0]
        ours = top in OURS and top not in ALLOWED[folder]
        framework = top in FRAMEWORKS and folder != "runners"
        foreign = folder == "networks" and top not in OURS and top not in sys.stdlib_module_names
        if ours or framework or foreign:
            found.add(module)
    return found


def package_violations(source: str, package: str) -> set[tuple[str, str]]:
    """Return (importing package, imported package) of every import that breaks the order."""
    own = _package(package)
    imported = {_package(module) for module in modules_named(source, package)} - {own}
    return {(own, other) for other in imported if not _may_import(own, other)}


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _may_import(own: str, other: str) -> bool:
    folder, other_folder = own.split(".")[0], other.split(".")[0]
    if folder == other_folder == "runners":
        if own in WORKER:
            return other in WORKER[:WORKER.index(own)]
        if (own, other) in OF_OTHERS:
            return True
        return other in (RUNNERS_FOR_STUDIES if own == "runners.studies" else RUNNERS_FOR_ALL)
    if folder == other_folder and folder in ORDER:
        own_rank, other_rank = _rank(own), _rank(other)
        return own_rank is None or other_rank is None or other_rank < own_rank
    if folder == "harness" and other_folder == "analysis" and own != "harness.cli":
        return other in ANALYSIS_FOR_HARNESS
    return True


def _rank(package: str) -> int | None:
    folder, _, name = package.partition(".")
    for rank, names in enumerate(ORDER[folder]):
        if name in names.split():
            return rank
    return None


def sources() -> list[Path]:
    return sorted(path for folder in OURS for path in (CHECKOUT / folder).rglob("*.py"))


def package_of(path: Path) -> str:
    """Return the dotted package of a file; a module at the top of a folder counts as a package."""
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 2 else parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_no_file_crosses_a_border(path):
    source, package = path.read_text(encoding="utf-8"), package_of(path)
    assert folder_violations(source, package) == set()
    assert package_violations(source, package) == set()


def test_every_package_has_a_place_in_the_order():
    packages = {package_of(path) for path in sources()}
    ordered = {package for package in packages if package.split(".")[0] in ORDER and "." in package}
    assert {package for package in ordered if _rank(_package(package)) is None} == set()


def test_no_package_holds_more_than_thirteen_modules():
    folders = {path.parent for path in sources()}
    counts = {folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
              for folder in folders}
    assert {str(folder): count for folder, count in counts.items() if count > 13} == {}


@pytest.mark.parametrize("row", ["flax", "equinox", "keras", "mlx", "tinygrad", "pytensor"])
def test_no_module_of_a_small_runner_has_more_than_three_hundred_lines(row):
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in sources() if path.parent == CHECKOUT / "runners" / row}
    assert lengths and {name: length for name, length in lengths.items() if length > 300} == {}


def test_no_import_cycle():
    modules = {".".join(path.relative_to(CHECKOUT).with_suffix("").parts): path for path in sources()}
    graph = {}
    for name, path in modules.items():
        named = modules_named(path.read_text(encoding="utf-8"), name.rpartition(".")[0])
        graph[name] = {_module(other, modules) for other in named} - {name, ""}
    while leaves := [name for name, others in graph.items() if not others & set(graph)]:
        graph = {name: others for name, others in graph.items() if name not in leaves}
    assert graph == {}


def _module(name: str, modules: dict[str, Path]) -> str:
    """Return the module that an imported name belongs to, as `a.b` for the function `a.b.c`."""
    return name if name in modules else name.rpartition(".")[0] * (name.rpartition(".")[0] in modules)


def long_signatures(source: str, name: str = "") -> set[str]:
    """Return the functions of `source` with more than 7 parameters, `self` aside."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            listed = node.args
            several = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs, listed.vararg, listed.kwarg]
            if len([each for each in several if each and each.arg not in ("self", "cls")]) > 7:
                found.add(f"{name}:{getattr(node, 'name', 'lambda')}")
    return found


def test_no_function_has_more_than_seven_parameters():
    everywhere = [*sources(), *(CHECKOUT / "scripts").rglob("*.py")]
    assert set().union(*(long_signatures(path.read_text(encoding="utf-8"), path.name) for path in everywhere)) == set()


@pytest.mark.parametrize(("source", "found"), [
    ("def one(self, a, b, c, d, e, f, g): ...", set()),
    ("def one(a, b, c, /, d, *, e, f, g, h): ...", {":one"}),
    ("def one(a, b, c, d, e, f, *more, **others): ...", {":one"}),
    ("class A:\n    async def one(self, a, b, c, d, e, f, g, h): ...", {":one"}),
    ("one = lambda a, b, c, d, e, f, g, h: a", {":lambda"}),
])
def test_a_planted_eighth_parameter_is_found(source, found):
    assert long_signatures(source) == found


@pytest.mark.parametrize("module", ["protocol", "session", "wire", "resources", "comparisons"])
def test_what_every_worker_loads_imports_numpy_and_runners_beside_the_standard_library(module):
    source = (CHECKOUT / "runners" / f"{module}.py").read_text(encoding="utf-8")
    modules = {name.split(".")[0] for name in modules_named(source, "runners")}
    assert modules - set(sys.stdlib_module_names) <= {"numpy", "runners"}


@pytest.mark.parametrize(("package", "source", "found"), [
    ("analysis", "import harness.records", {"harness.records"}),
    ("analysis", "from runners import protocol", {"runners.protocol"}),
    ("analysis", "def late():\n    from harness import records", {"harness.records"}),
    ("analysis", "import importlib\nimportlib.import_module('harness')", {"harness"}),
    ("analysis", "import torch", {"torch"}),
    ("networks", "from harness.errors import WrongUse", {"harness.errors.WrongUse"}),
    ("networks", "import numpy as np", {"numpy"}),
    ("networks.catalogue", "from ...harness import errors", {"harness.errors"}),
    ("runners", "import networks", {"networks"}),
    ("harness", "import torch.nn", {"torch.nn"}),
])
def test_a_planted_import_across_folders_is_found(package, source, found):
    assert folder_violations(source, package) == found


@pytest.mark.parametrize(("package", "source", "other"), [
    ("runners.jax", "from runners.pytorch.runner import Runner", "runners.pytorch"),
    ("runners.jax", "from runners.studies import candidates", "runners.studies"),
    ("runners.jax", "from runners import protocol_helpers", "runners.protocol_helpers"),
    ("runners.protocol", "from runners.jax import runner", "runners.jax"),
    ("runners.tracer", "from runners.session import Session", "runners.session"),
    ("runners.jax", "from runners.session import Session", "runners.session"),
    ("runners.session", "from runners.wire import Wire", "runners.wire"),
    ("runners.jax", "from runners.keras import layers", "runners.keras"),
    ("runners.studies.layers", "from runners.jax import layers", "runners.jax"),
    ("harness.plan", "from harness.campaign import process", "harness.campaign"),
    ("harness.proof", "import harness.machine.gpus", "harness.machine"),
    ("harness.plan", "from analysis.compare import verdicts", "analysis.compare"),
    ("analysis.explain", "def late():\n    from analysis.report import report", "analysis.report"),
])
def test_a_planted_import_across_packages_is_found(package, source, other):
    assert package_violations(source, package) == {(_package(package), other)}


@pytest.mark.parametrize(("package", "source"), [
    ("runners.jax", "import jax\nfrom runners import protocol\nfrom runners.jax import layers"),
    ("runners.studies", "from runners.pytorch import parallel\nfrom runners.studies import gemm"),
    ("networks.catalogue", "import math\nfrom networks.builder import Builder\nfrom .fcn import fcn5"),
    ("analysis.report", "import pandas\nfrom networks import get\nfrom analysis.explain import gap"),
    ("harness.cli", "from analysis.compare import report\nfrom harness.studies import gemm"),
    ("harness.campaign", "from analysis.records import reader\nfrom runners import protocol"),
])
def test_what_is_allowed_is_let_through(package, source):
    assert folder_violations(source, package) == set()
    assert package_violations(source, package) == set()
