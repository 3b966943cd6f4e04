"""Hooks of mkdocs: write the reference pages that follow from the code, and link to campaigns.

The typer application gives the command line, the pydantic model the suite's keys. The pages are
built beside the site of results, so a link to a campaign's folder becomes a link to its page there.
"""

import inspect
import logging
import re
from pathlib import Path

import typer.cli
import yaml
from mkdocs.structure.files import File

from analysis.site import selection
from harness.cli.main import app
from harness.plan.parts import Check, Limits, NetworkChoice, Skip, Until
from harness.plan.suite import Suite

ROOT = Path(__file__).parents[1]
LOG = logging.getLogger("mkdocs.hooks")  # a warning here fails a strict build
SHOWN = selection.listed(ROOT / "results")
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)[^)#\s]+)(#[^)\s]*)?\)")
SUITE = {"": Suite, "networks": NetworkChoice, "skip": Skip, "check": Check, "limits": Limits,
         "until": Until}


def on_files(files, config):
    for name, text in (("command-line", command_line()), ("suite-keys", suite_keys())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))


def on_page_markdown(markdown, page, config, files):
    """Give links to results/ a scheme of their own, which mkdocs does not check, and check them.

    A folder that the site does not show is named, without a link. A plot is copied.
    """
    def lead(found):
        target = (Path(config.docs_dir, page.file.src_uri).parent / found[2]).resolve()
        if target.is_relative_to(config.docs_dir):
            return found[0]
        if not target.is_relative_to(ROOT / "results") or not target.exists():
            LOG.warning("%s links to %s, which is not in results/", page.file.src_uri, found[2])
            return found[0]
        path = target.relative_to(ROOT)
        if path.suffix == ".svg":
            plot = f"plots/{path.parts[1]}-{path.name}"
            files.append(File.generated(config, plot, abs_src_path=str(target)))
            return f"[{found[1]}]({'../' * page.file.src_uri.count('/')}{plot})"
        folder = path.parts[1] if len(path.parts) > 1 else "README.md"
        if folder not in (*SHOWN, "README.md"):
            return f"{found[1]} (`results/{folder}` in the repository)"
        return f"[{found[1]}](results:{place(path)}{found[3] or ''})"

    return OUTSIDE.sub(lead, markdown)


def on_page_content(html, page, config, files):
    return html.replace('"results:', '"' + "../" * (page.url.count("/") + 1))


def on_post_build(config):
    """Remove the theme's page for lost links, whose own links need the root of a server."""
    Path(config.site_dir, "404.html").unlink(missing_ok=True)


def place(path):
    """Where the site of results shows a file of results/: a report is its folder's page."""
    if path.as_posix() in ("results", "results/README.md"):
        return "index.html"
    folder = path.parent if path.name in ("report.md", "compare.md") else path
    if len(folder.parts) != 2 or not (ROOT / folder).is_dir():
        return path
    page = "/index.html" if (ROOT / folder / "campaign.json").exists() else ".html"
    return f"campaigns/{folder.name}{page}"


def command_line():
    command = typer.main.get_command(app)
    text = typer.cli.get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="dlbench", title="Command line")
    # typer cuts each command's sentence short in its lists; the sections below them have it whole
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+", "", text)
    text = re.sub(r"(\*\*Options\*\*:\n\n)?\* `--help`: .*\n", "", text)
    # as in results/<suite>-<time>, which Markdown takes for tags outside of code
    text = re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)
    return text.replace(f"{ROOT}/", "")


def suite_keys():
    """Every key of a suite with its values, default and meaning."""
    lines = ["# Suite keys"]
    for parent, model in SUITE.items():
        lines += ["", f"## `{parent}`" if parent else "", "", inspect.cleandoc(model.__doc__), "",
                  "key | value | default | meaning", "--- | --- | --- | ---"]
        for key, field in model.model_json_schema()["properties"].items():
            default = yaml.safe_dump(field.get("default", {}), default_flow_style=True, width=200)
            cells = f"`{key}`", values(field), f"`{default.splitlines()[0]}`", field["description"]
            lines.append(" | ".join(cells))
    return "\n".join(lines)


def values(field):
    """What may be written for a key, by its JSON schema."""
    if "anyOf" in field:
        return " or ".join(values(each) for each in field["anyOf"] if each.get("type") != "null")
    if "prefixItems" in field:
        return f"[{', '.join(values(each) for each in field['prefixItems'])}]"
    if field.get("type") == "array":
        return f"list of {values(field['items'])}"
    choices = field.get("enum") or ([field["const"]] if "const" in field else [])
    kind = field.get("type", "object").replace("object", "mapping")
    return ", ".join(f"`{choice}`" for choice in choices) or kind
