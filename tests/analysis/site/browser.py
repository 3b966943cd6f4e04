"""Opens pages of the site in headless Chromium, and lets axe-core look for what shuts readers out."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def scripted(page: Path, script: str) -> str:
    """The text of `page` with a script that runs after it has loaded and leaves what it puts into `found` as the page's title."""
    told = f"const found = {{}}; {script}; document.title = JSON.stringify(found);"
    return page.read_text(encoding="utf-8").replace("</body>", f"<script>setTimeout(() => {{ {told} }}, 1500);</script></body>")


def in_chromium(page: Path, script: str, width: int = 1280) -> dict:
    """Open a copy of `page` in headless Chromium, run `script` and return what it puts into `found`, on that page or the last."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no Chromium here: apt-get install chromium")
    return told_by(scripted(page, script), page, f"--window-size={width},900")


def told_by(text: str, page: Path, *options: str, address: str = "") -> dict:
    """Open `text` in the place of `page` and return the JSON that becomes the page's title."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no Chromium here: apt-get install chromium")
    copy = page.with_name("tested.html")
    copy.write_text(text, encoding="utf-8")
    asked = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *options,
             "--virtual-time-budget=8000", f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", copy.as_uri() + address]
    shown = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=True).stdout
    copy.unlink()
    return json.loads(html.unescape(re.search(r"<title>(\{.*?\})</title>", shown)[1]))


def violations(page: Path, *options: str) -> list[str]:
    """The rules of axe-core that `page` breaks, each with the place where it does first."""
    package = importlib.util.find_spec("axe_core_python")
    if not package:
        pytest.skip("no axe-core here: pip install axe-core-python, or make dev")
    source = Path(package.origin).with_name("axe.min.js").as_uri()
    told = """
      const { violations } = await axe.run({ resultTypes: ["violations"] });
      const found = violations.map(({ id, impact, nodes }) => `${id} (${impact}): ${nodes[0].target}`);
      document.title = JSON.stringify({ found })"""
    text = page.read_text(encoding="utf-8").replace(
        "</body>", f'<script src="{source}"></script><script>setTimeout(async () => {{ {told} }}, 1500);</script></body>')
    return told_by(text, page, *options)["found"]
