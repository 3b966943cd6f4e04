"""What a comparison writes for a job in CI: JSON, Markdown, and the job's own summary."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.compare.outcome import NotRun, as_json, as_markdown
from analysis.compare.report import Comparison
from harness.cli.terminal import console
from harness.errors import WrongUse
from harness.records import lock

STANDARD = "-"
# GitHub names a file here that becomes the job's summary.
SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True)
class Outputs:
    """The places of the JSON and the Markdown: files, - for the standard output, or none."""

    json: str
    markdown: str

    @contextmanager
    def opened(self) -> Iterator["Outputs"]:
        """Check the places, and keep the standard output for what they ask of it."""
        if self.json == self.markdown == STANDARD:
            raise WrongUse("--json - and --markdown -: only one can be the standard output")
        for option, place in (("--json", self.json), ("--markdown", self.markdown)):
            if place not in ("", STANDARD):
                lock.probe_file(option, Path(place))
        before = console.stderr
        console.stderr = before or STANDARD in (self.json, self.markdown)
        try:
            yield self
        finally:
            console.stderr = before

    def write(self, found: Comparison | NotRun) -> None:
        """Write what was found to every place, and add it to the job's summary."""
        for place, text in ((self.json, as_json(found)), (self.markdown, as_markdown(found))):
            if place == STANDARD:
                print(text, end="")
            elif place:
                Path(place).write_text(text, encoding="utf-8")
        if summary := os.environ.get(SUMMARY):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(as_markdown(found) + "\n")
