"""The index of published results is the one that the command writes."""

from pathlib import Path

from analysis.site import index

RESULTS = Path(__file__).parents[3] / "results"


def test_the_index_of_the_results_is_current_and_short():
    text = index.readme(RESULTS)
    assert (RESULTS / "README.md").read_text() == text, "write it anew: dlbench publish --index"
    assert len(text.splitlines()) <= 80
    assert all(f"[{folder.name}](" in text for folder in RESULTS.iterdir() if folder.is_dir())
