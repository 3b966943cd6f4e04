"""A site of small records, for the tests to read and for Chromium to open."""

from pathlib import Path

import pytest

from analysis.site import publish
from analysis.trials import summary


@pytest.fixture(scope="session")
def published(tmp_path_factory, smoke, draw_records) -> Path:
    """The site of a campaign with refused rows, one of an older release, a folder of verdicts and one with a page of its own."""
    root = tmp_path_factory.mktemp("published")
    older = draw_records(networks=("alexnet_cifar",))
    for trial in older.meta["trials"]:
        trial["release"] = "2.9.1"
    for row in older.processes:
        row["release"] = "2.9.1"
    for name, made in (("smoke", smoke), ("older", older)):
        summary.rewrite(made.write(root / "results" / name))
    (root / "results/verify").mkdir()
    (root / "results/verify/verdicts.csv").write_text("framework,network,verdict\njax,fcn5,same\n")
    (root / "results/study").mkdir()
    (root / "results/study/study.html").write_text("<p>a study</p>")
    (root / "results/study/plots").mkdir()
    (root / "results/study/plots/plot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="900" height="90"/>')
    (root / "results/study/study.md").write_text("# A study\n\n| shape | time |\n| --- | --- |\n| 3 | 4 ms |\n\n![A plot](plots/plot.svg)\n\n- " + "a_long_name_" * 9 + "\n")
    for name in ("fcn5", "alexnet"):
        folder = root / "results/explained" / name
        folder.mkdir(parents=True)
        sentences = f"- {name}: jax is slower.\n- It is TF32.\n- No more.\n"
        (folder / "explain.md").write_text(f"# Why jax and pytorch differ\n\nA is jax.\n\n{sentences}")
    publish.publish(sorted((root / "results").iterdir()), root / "site", {"smoke": "all holds"})
    return root / "site"
