"""What reaches the terminal: names as they are, nothing that steers it, and no traceback of a stopped command."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rich.table import Table
from typer.testing import CliRunner

from harness.cli.main import app
from harness.cli.terminal import Terminal

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "tests" / "analysis" / "recorded" / "h200-fcn5"


def test_escape_codes_and_emoji_are_shown_and_not_obeyed():
    out = io.StringIO()
    console, table = Terminal(emoji=False, file=out, width=80), Table("name")
    table.add_row("\x1b]0;owned\x07")
    console.print("\x1b[31mpytorch:x: \udcff", markup=False)
    console.print(table)
    assert "\\x1b[31mpytorch:x: \\udcff" in out.getvalue() and "\\x1b]0;owned\\x07" in out.getvalue()
    assert not {"\x1b", "\x07", "\udcff"} & set(out.getvalue())


def test_a_folder_may_be_named_like_markup(tmp_path):
    folder = shutil.copytree(RECORDED, tmp_path / "[" / "x]" / "a:boom:")
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert "a:boom:" in done.output


def test_a_command_that_is_stopped_in_its_imports_shows_no_traceback():
    code = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from harness.start import main
main()"""
    stopped = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (1, "", "dlbench: stopped\n")


def test_a_terminal_that_lacks_a_character_shows_its_escape_code(tmp_path):
    folder = shutil.copytree(RECORDED, tmp_path / "\xe9")
    done = subprocess.run([sys.executable, "-m", "harness.start", "report", str(folder)], cwd=ROOT, capture_output=True,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xe9/report.html" in done.stdout
