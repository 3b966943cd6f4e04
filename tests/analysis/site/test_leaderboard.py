"""The leaderboard ranks each framework's fastest proven row of one campaign, and nothing else."""

import re

import pytest

from analysis.site import grids, leaderboard, writer
from analysis.trials import caveats


@pytest.fixture
def board(draw_records, tmp_path):
    """Write records with some trials of one network and return the only line of the only board."""
    def make(*trials, started="2026-11-21", change=lambda made: None, name="campaign"):
        made = draw_records(networks=())
        made.meta["started"] = f"{started}T07:00:00+00:00"
        for framework, options in trials:
            made.add_trial(framework, "fcn5", 512, **options)
        change(made)
        return grids.read(made.write(tmp_path / name))
    return make


def line(*published):
    boards = leaderboard.boards(published)
    assert [len(each.lines) for each in boards] == [1]
    return boards[0].lines[0]


def test_each_framework_stands_at_its_best_tier_with_ratio_interval_and_strength(board):
    published = board(("pytorch", {}), ("pytorch", {"tuning": "tuned", "slower": 0.5}), ("jax", {"slower": 1.0}),
                      change=lambda made: made.prove_each_process(rate=0.004, gradient=0.002))
    found = line(published)
    best, other = found.ranked
    assert (best.framework, best.detail, best.rank, found.winner) == ("pytorch", "2.13.0, tuned", "fastest", "pytorch")
    assert best.href == "campaigns/campaign/pytorch-2.13.0-fcn5-512-fp32-tuned.html"
    assert other.rank.startswith("0.5") and " to " in other.rank and other.ends[0] < 0.5 < other.ends[1] < 0.6
    assert best.rate == pytest.approx(512 / 0.055, rel=0.05)
    assert found.answer.startswith("pytorch is the fastest: 1.99 (1.9") and found.answer.endswith("times as fast as jax.")
    assert (best.badge, best.weak) == ("proven: rate 0.4 %, gradients 0.2 %", False)
    assert "learning rate that is wrong by 0.4 % and gradients that are wrong by 0.2 %" in best.strength


@pytest.mark.parametrize(("proof", "badge", "weak"), [
    ({"rate": 0.004, "gradient": 0.06}, "proven: rate 0.4 %, gradients 6 %", True),
    ({"rate": 0.06, "gradient": 0.004}, "proven: rate 6 %, gradients 0.4 %", True), (None, "proven, first edition", False)])
def test_a_weak_proof_and_one_of_the_first_edition_say_so(board, proof, badge, weak):
    published = board(("pytorch", {}), ("jax", {}), change=lambda made: proof and made.prove_each_process(**proof))
    assert {(cell.badge, cell.weak) for cell in line(published).ranked} == {(badge, weak)}


def test_the_board_that_compares_most_rows_comes_first(draw_records, tmp_path):
    made = draw_records(networks=())
    for batch in (64, 128, 256, 512):
        made.add_trial("pytorch", "fcn5", batch, precision="tf32")
        made.add_trial("jax", "fcn5", batch, precision="tf32", slower=2.0)
    for framework in ("pytorch", "jax", "tensorflow"):
        made.add_trial(framework, "fcn5", 512, precision="bf16")
    folder = made.write(tmp_path / "campaign")
    names = [trial["trial"] for trial in made.meta["trials"]]
    alone = [name for name in names if name.startswith("jax") and "tf32" in name][:3]
    (folder / caveats.FILE).write_text("trial,what,since,ranking\n" + "".join(f"{name},slow,2026-11-22,ranked\n" for name in alone))
    # Five rows of tf32 are ranked, of which two are beside each other.
    assert [each.precision for each in leaderboard.boards([grids.read(folder)])] == ["bf16", "tf32"]


CAVEAT = "trial,what,since,ranking\ntensorflow-2.21.0-fcn5-512-fp32-stock,it shared the host,2026-11-22,ranked\n"


def test_a_row_that_is_not_proven_is_never_ranked_and_one_with_a_caveat_never_loses(board, tmp_path):
    def fault(made):
        for row in made.processes_of("jax-1.0-fcn5-512-fp32-stock"):
            row.update(check="different", check_reason="gradients differ")
        (tmp_path / "campaign").mkdir()
        (tmp_path / "campaign" / caveats.FILE).write_text(CAVEAT)
    published = board(("pytorch", {}), ("jax", {"slower": 0.2}), ("tensorflow", {"slower": 2.0}), change=fault)
    found = line(published)
    assert [cell.framework for cell in found.ranked] == ["pytorch"]
    assert {cell.framework: cell.state for cell in found.cells if not cell.rate} == {
        "tensorflow": "has a caveat", "jax": "not proven"}
    assert (found.winner, found.answer) == ("", "Only pytorch is proven.")


def test_a_row_that_is_the_fastest_in_spite_of_its_caveat_is_ranked_and_shows_it(board, tmp_path):
    def caveat(_):
        (tmp_path / "campaign").mkdir()
        (tmp_path / "campaign" / caveats.FILE).write_text(CAVEAT)
    published = board(("pytorch", {}), ("tensorflow", {"slower": 0.5}), change=caveat)
    found = line(published)
    assert found.winner == "tensorflow"
    assert [(cell.framework, "it shared the host" in cell.caveat) for cell in found.ranked] == [("tensorflow", True), ("pytorch", False)]
    site = writer.Site(tmp_path, [tmp_path / "campaign"])
    site.write("page.html", "workload.html.j2", "fcn5", boards=leaderboard.boards([published]), facts="", table=grids.Grid([], []))
    assert (tmp_path / "page.html").read_text().count("could be faster: has a caveat") == 1


def test_there_is_no_winner_while_one_other_may_be_as_fast(board):
    found = line(board(("pytorch", {}), ("jax", {"slower": 1.005}), ("tensorflow", {"slower": 2.0})))
    assert found.winner == "" and found.answer.startswith("No proven winner: ")
    assert "tensorflow" not in found.answer
    assert leaderboard.boards([board(("pytorch", {}), ("jax", {"slower": 1.005}), name="b")])[0].summary == \
        "Of 1 workload, no proven winner in 1."


def test_a_highest_rate_that_is_no_proven_winner_is_not_called_the_fastest(board, tmp_path):
    site = writer.Site(tmp_path, [tmp_path / "campaign"])
    for slower, rank in ((1.005, "highest rate"), (2.0, "fastest")):
        boards = leaderboard.boards([board(("pytorch", {}), ("jax", {"slower": slower}), name=rank)])
        site.write("page.html", "workload.html.j2", "fcn5", boards=boards, facts="", table=grids.Grid([], []))
        text = (tmp_path / "page.html").read_text()
        assert re.findall("<span>(highest rate|fastest)</span>", text) == [rank]
        assert "one\nabove 5 % is amber" in text


def test_a_line_comes_from_the_campaign_whose_frameworks_are_closest_to_their_best(board):
    stock = board(("pytorch", {"slower": 3.0}), ("jax", {}), ("tensorflow", {"slower": 3.0}), started="2026-11-25", name="stock")
    tuned = board(("pytorch", {"tuning": "tuned"}), ("jax", {"tuning": "tuned"}), name="tuned")
    alone = board(("tensorflow", {"tuning": "tuned"}), name="alone")
    assert line(stock, tuned).campaign == "stock"  # nobody has shown that TensorFlow can be faster
    assert line(alone, stock, tuned).campaign == "tuned"


def test_threads_of_a_gpus_host_make_no_line_of_their_own(board):
    both = ("pytorch", {}), ("jax", {"slower": 2.0})
    old, new = board(*both, name="old"), board(*both, started="2026-11-25", name="new")
    for kind, lines in (("cpu", 2), ("cuda", 1)):
        for published, threads in ((old, 1), (new, 0)):
            published.rows["device_kind"], published.rows["threads"] = kind, threads
        (found,) = leaderboard.boards([old, new])
        assert len(found.lines) == lines
    assert found.lines[0].campaign == "new"


def test_a_line_comes_from_the_campaign_with_most_frameworks_then_from_the_newest(board):
    both = ("pytorch", {}), ("jax", {"slower": 2.0})
    many = board(*both, ("tensorflow", {}), name="many")
    new = board(*both, started="2026-11-25", name="new")
    newer = board(*both, ("tensorflow", {}), started="2026-11-26", name="newer")
    assert line(many, new).campaign == "many"
    assert line(newer, many, new).campaign == "newer"


def test_a_line_of_few_processes_says_so_and_yields_to_one_with_more(board):
    few = board(("pytorch", {"processes": 3}), ("jax", {"slower": 2.0, "processes": 5}), started="2026-11-25", name="few")
    many = board(("pytorch", {"processes": 8}), ("jax", {"slower": 2.0, "processes": 5}), name="many")
    assert line(few).effort == "3 processes a row" and line(many).effort == ""
    for published in (few, many):
        published.rows["step_seconds"] = published.rows["step_seconds"].round(3)
    assert line(few, many).campaign == "many"


def test_one_framework_alone_and_a_comparison_of_releases_have_no_line(board, tmp_path):
    assert leaderboard.boards([board(("pytorch", {}), ("pytorch", {"tuning": "tuned"}), name="alone")]) == []
    compared = board(("pytorch", {}), ("jax", {}), name="compared")
    (tmp_path / "compared" / "compare.csv").write_text("")
    assert leaderboard.boards([compared]) == []


def test_a_part_of_the_step_that_was_timed_is_a_phase_of_its_own(board):
    def time_forward(made):
        for row in made.processes:
            factor = 0.01 if row["trial"].startswith("jax") else 0.03
            for window in range(-1, 5):
                seconds = factor * (1 + 0.01 * row["process"] + 0.001 * window)
                made.phases.append({"trial": row["trial"], "process": row["process"], "window": window, "variant": "F", "steps": 1,
                                    "seconds": seconds, "start": 0.0, "stop": seconds})
    published = board(("pytorch", {}), ("jax", {"slower": 2.0}), change=time_forward)
    boards = leaderboard.boards([published])
    assert {each.phase: each.lines[0].winner for each in boards} == {"training step": "pytorch", "forward pass": "jax"}


def test_what_records_say_is_text_on_the_board(board, tmp_path):
    hostile = "<img src=x onerror=run()>"
    published = board(("pytorch", {}), ("jax", {"slower": 2.0}))
    published.rows.loc[published.rows["framework"] == "jax", ["framework", "release", "tuning"]] = hostile
    published.rows["network"] = hostile
    site = writer.Site(tmp_path, [tmp_path / "campaign"])
    boards = leaderboard.boards([published])
    site.write("index.html", "index.html.j2", "Title", boards=boards, filters=leaderboard.filters(boards), verified=1, count=2,
               questions=[], first_look="")
    text = (tmp_path / "index.html").read_text()
    assert "<img" not in text and text.count("&lt;img src=x onerror=run()&gt;") > 8
