"""The studies of operations by name: the title of each page, and the function that fills it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis.records import pages, study_reader
from analysis.records.study_reader import Records
from analysis.records.text import BadRecords
from analysis.studies import attention, conv, gemm, layers, pipelines, report
from analysis.studies.report import Part

# Each takes the records, their estimates, and campaigns whose kernels two of the pages show.
STUDIES: Mapping[str, tuple[str, Callable[[Records, pd.DataFrame, Sequence[Path]], list[Part]]]] = {
    "gemm": ("What a transposed operand costs", gemm.parts),
    "conv": ("Convolution algorithms", conv.parts),
    "layers": ("Single layers over the frameworks", layers.parts),
    "attention": ("Attention over implementations and frameworks", attention.parts),
    "pipelines": ("From images and video to answers", pipelines.parts)}


def write(folder: Path, out: Path, campaigns: Sequence[Path] = (), plots: bool = True) -> Path:
    """Write the page of a study into `out` and return it. Raises BadRecords."""
    file = folder / "study.json"
    name = str(pages.read_page(file, "name a folder that `dlbench study` wrote").get("study"))
    if name not in STUDIES:
        raise BadRecords(f"{file}: `dlbench study {name} --again` makes this page again")
    title, parts_of = STUDIES[name]
    study = study_reader.read(folder)
    pages.check_page(file, study.meta, pages.PointsPage)
    parts = parts_of(study, study_reader.estimates(study), campaigns)
    return report.write(study, title, parts, out, plots)
