"""Who may import whom. Only `harness` knows both sides; a worker sees nothing of the driver, an analysis measures nothing.

Imports are read from the source and not from running modules, so one inside a function counts too.
"""

import ast
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
OURS = {"networks", "runners", "harness", "analysis"}
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "jaxlib", "paddle", "mxnet", "cntk", "caffe"}

# What a folder may import of ours; `runners` is some modules and not the folder, so that no runner leans on another.
ALLOWED = {
    "networks": {"networks"},
    "runners": {"runners.protocol", "runners.tracer", "runners.candidates", "runners.layers", "runners.layer_reference"},
    "analysis": {"analysis", "networks"},
    "harness": {"harness", "networks", "runners", "analysis"},
}


def imports(source: str, package: str) -> set[str]:
    """Every module that `source`, a module of `package`, names in an import, in full; `from a import b` counts as a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            # Only names that are written out: a computed one is the protocol's way to load a runner.
            found |= {str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return found


def trespasses(source: str, package: str, runner: str = "") -> set[str]:
    """Imports of `source` that its folder may not make; the files of one `runner` may import one another."""
    folder = package.split(".")[0]
    found = set()
    for module in imports(source, package):
        top = module.split(".")[0]
        ours = top in OURS and not any(f"{module}.".startswith(f"{allowed}.") for allowed in ALLOWED[folder])
        ours = ours and not (runner and module.startswith(f"runners.{runner}_"))
        framework = top in FRAMEWORKS and folder != "runners"
        foreign = folder == "networks" and top not in OURS and top not in sys.stdlib_module_names
        if ours or framework or foreign:
            found.add(module)
    return found


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def sources() -> list[Path]:
    return sorted(path for folder in OURS for path in (CHECKOUT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_no_file_crosses_a_border(path):
    package = ".".join(path.relative_to(CHECKOUT).parent.parts)
    runner = path.name.partition("_")[0] if package == "runners" else ""
    assert trespasses(path.read_text(encoding="utf-8"), package, runner) == set()


def test_the_protocol_imports_only_numpy_and_its_tracer_beside_the_standard_library():
    modules = imports((CHECKOUT / "runners" / "protocol.py").read_text(encoding="utf-8"), "runners")
    assert {module for module in modules if module.split(".")[0] not in sys.stdlib_module_names} == {"numpy", "runners.tracer"}


@pytest.mark.parametrize(("package", "source", "found"), [
    ("analysis", "import harness.records", {"harness.records"}),
    ("analysis", "from runners import protocol", {"runners.protocol"}),
    ("analysis", "def late():\n    from harness import records", {"harness.records"}),
    ("analysis", "import importlib\nimportlib.import_module('harness')", {"harness"}),
    ("analysis", "import torch", {"torch"}),
    ("networks", "from harness.errors import WrongUse", {"harness.errors.WrongUse"}),
    ("networks", "import numpy as np", {"numpy"}),
    ("networks.catalogue", "from ...harness import errors", {"harness.errors"}),
    ("runners", "from runners.pytorch_runner import Runner", {"runners.pytorch_runner.Runner"}),
    ("runners", "from . import pytorch_runner", {"runners.pytorch_runner"}),
    ("runners", "import networks", {"networks"}),
    ("runners", "from runners import protocol_helpers", {"runners.protocol_helpers"}),
    ("harness", "import torch.nn", {"torch.nn"}),
])
def test_a_planted_trespass_is_found(package, source, found):
    assert trespasses(source, package) == found


def test_a_runner_may_be_in_several_files_but_not_lean_on_another():
    source = "from runners import pytorch_parallel\nfrom runners.jax_runner import Runner"
    assert trespasses(source, "runners", "pytorch") == {"runners.jax_runner.Runner"}


@pytest.mark.parametrize(("package", "source"), [
    ("runners", "import torch\nimport numpy\nfrom runners.protocol import Unsupported\nfrom runners import protocol"),
    ("runners", "from .protocol import Unsupported"),
    ("networks.catalogue", "import math\nfrom networks.builder import Builder\nfrom .fcn import fcn5"),
    ("analysis", "import pandas\nfrom networks import get"),
    ("harness", "from analysis import statistics\nfrom runners import protocol\nimport networks"),
])
def test_what_is_allowed_is_let_through(package, source):
    assert trespasses(source, package) == set()
