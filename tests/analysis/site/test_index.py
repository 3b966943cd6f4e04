"""The index of published results is the one that the command writes, and their list can be published."""

from analysis.site import findings, index, links, publish, selection
from harness.environments import recipes
from tests import recorded

RESULTS = recorded.RESULTS


def test_the_index_of_the_results_is_current_and_short(tmp_path):
    for folder in recorded.folders():
        (tmp_path / folder.name).symlink_to(folder)
    text = index.readme(tmp_path)
    assert (RESULTS / "README.md").read_text() == text, "write it anew: dlbench publish --index"
    assert len(text.splitlines()) <= 90
    assert all(f"[{folder.name}](" in text for folder in recorded.folders())


def test_planted_faults_are_counted_apart_from_honest_rows(tmp_path):
    folder = tmp_path / "proof"
    folder.mkdir()
    rows = [("jax", "fcn5", "none", "same"), ("jax", "lstm32", "none", "same"), ("jax", "vgg16", "none", "crashed"),
            ("jax", "vit_b16", "none", "unsupported"), ("jax", "fcn5", "Never", "different"), ("jax", "fcn5", "Late", "same")]
    (folder / "verdicts.csv").write_text("\n".join(map(",".join, [("framework", "network", "fault", "verdict"), *rows])))
    line = index.readme(tmp_path).splitlines()[-1]
    assert line.endswith("| dlbench verify: 4 networks |  | jax | 2 of 4, 1 of 2 planted faults refused")
    assert findings.of_verdicts(folder) == (
        "2 of 4 rows are the same, 1 unsupported, different or failed: jax vgg16; 1 of 2 planted faults refused.")


def test_a_bisection_of_calls_says_which_of_them_became_slower(tmp_path):
    rows = ("1.2,5,1.3,1.2,1.4,regressed,,p99", "1.1,5,1.0,0.98,1.01,sound,,p99")
    (tmp_path / "bisect.csv").write_text("\n".join(("release,processes,ratio,low,high,verdict,reason,measure", *rows)))
    said = findings.of_bisection(tmp_path)
    assert said.startswith("1.2 is slower in p99: 1.3") and "; 1.1 is not slower in p99: 1" in said


def test_the_list_of_published_results_names_finished_campaigns_of_known_frameworks():
    chosen, left = selection.choose(RESULTS, recipes.names())
    assert {folder.name for folder in chosen} == set(selection.listed(RESULTS))
    assert set(left.values()) <= {"not listed"}


def test_no_link_of_published_studies_and_verdicts_is_broken(tmp_path):
    chosen, _ = selection.choose(RESULTS, recipes.names())
    studies = [folder for folder in chosen if not (folder / "campaign.json").exists()]
    docs = RESULTS.parent / "docs"
    pages = publish.publish(studies, tmp_path, {}, docs)
    assert len(pages) > len(studies) > 10
    assert links.broken(tmp_path, docs) == []
