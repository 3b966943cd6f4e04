"""`dlbench track` measures what its folder lacks, and nothing again."""

from pathlib import Path

import pytest

from harness.campaign.rehearsal import SideFailed
from harness.cli.comparisons import compare
from harness.environments import recipes, wheels
from tests.analysis.compare.test_track import write_history


@pytest.fixture
def track(monkeypatch, tmp_path, dlbench):
    """Run the command; comparisons write made-up records. Returns what was measured with the answer."""
    monkeypatch.chdir(tmp_path)
    asked, given = [], []

    def run_live(request, place, resume, allow_dirty):
        release = request.b.partition("==")[2]
        asked.append((request.a, release, resume))
        given.append(dict(request.interpreters))
        if release == "2.12.0":
            raise SideFailed({"a": request.a, "b": request.b}, "B", "crashed: no such symbol")
        write_history(place.parent, {release: 1.3 if release >= "2.13" else 1.0}, base=request.a.partition("==")[2])

    monkeypatch.setattr(compare, "run_live", run_live)
    monkeypatch.setattr(wheels, "versions", lambda *arguments: ["2.14.0", "2.13.1", "2.13.0", "2.12.0", "2.11.0", "2.10.0"])

    def call(*words):
        asked.clear()
        return (*dlbench("track", "pytorch", *words), list(asked))
    call.interpreters = given
    return call


def test_a_second_call_measures_only_what_is_missing(track):
    code, out, error, asked = track("--releases", "2.10.0,2.11.0")
    assert (code, error, asked) == (0, "", [("pytorch==2.10.0", "2.11.0", False)])
    assert "results/track-pytorch: base pytorch==2.10.0; missing: 2.11.0" in out and "No release of 2 is shown to be slower." in out
    code, out, _, asked = track("--releases", "2.10.0,2.11.0,2.13.0", "--fail-on-regression")
    assert (code, asked) == (1, [("pytorch==2.10.0", "2.13.0", False)])
    assert "Slower: 2.13.0 in " in out
    assert track("--releases", "2.10.0,2.11.0,2.13.0")[0] == 0
    file = Path("results/track-pytorch/2.13.0/campaign.json")
    file.write_text(file.read_text().replace('"finished": "2026', '"finished": null, "was": "2026'))
    assert track("--releases", "2.11.0,2.13.0")[3] == [("pytorch==2.10.0", "2.13.0", True)]


def test_a_range_takes_every_release_of_the_index_and_one_that_cannot_run_is_said(track):
    code, out, error, asked = track("--releases", "2.10..2.13", "--out", "out")
    assert (code, error, [release for _, release, _ in asked]) == (4, "", ["2.11.0", "2.12.0", "2.13.0", "2.13.1"])
    assert "B (pytorch==2.12.0) could not be built or run: crashed: no such symbol" in out
    assert "2.12.0" in Path("out/track.md").read_text() and Path("out/plots/track.png").exists()


def test_a_dry_run_says_what_is_missing_and_measures_nothing(track):
    code, out, _, asked = track("--releases", "2.12..2.13", "--dry-run")
    assert (code, asked, Path("results").exists()) == (0, [], False)
    assert "base pytorch==2.12.0; missing: 2.13.0, 2.13.1" in out


def test_an_interpreter_of_the_framework_or_of_a_release_is_used_and_another_is_refused(track):
    listed = ["--releases", "2.10.0,2.11.0", "--interpreter"]
    code, _, error, asked = track(*listed, "pytorch==2.12.0=/other")
    assert (code, asked) == (2, []) and "--interpreter pytorch==2.12.0: is of no release that is compared" in error
    assert track(*listed, "pytorch=/any", "--out", "a")[0] == 0
    assert track(*listed, "pytorch==2.11.0=/one", "--out", "b")[0] == 0
    assert track.interpreters == [{"pytorch": Path("/any")}, {"pytorch==2.11.0": Path("/one")}]


@pytest.mark.parametrize(("words", "said"), [
    (["--releases", "2.13"], "--releases 2.13: two releases or more make a timeline, and there is 2.13"),
    (["--releases", "3..4"], "--releases 3..4: two releases or more make a timeline, and there is none"),
    (["--releases", "new..old"], "--releases new..old: write releases as in 2.9..2.13"),
])
def test_releases_that_make_no_timeline_end_with_2(track, words, said):
    code, _, error, asked = track(*words)
    assert (code, said in error, asked) == (2, True, [])
    assert recipes.load("pytorch").releases
