"""What each tier sets, and each framework at its best: the only table that compares tiers."""

import pytest

from analysis.display import ranking
from analysis.records import reader
from analysis.report import report, tables, tiers
from analysis.site import grids
from analysis.trials import summary

REASON = "its step is compiled already"


@pytest.fixture
def campaign(draw_records, tmp_path):
    """PyTorch is the slower one in each tier that both have; its tuned tier is the fastest."""
    made = draw_records(networks=())
    for network, batch in (("alexnet_cifar", 128), ("lstm32", 16)):
        for framework, tuning, slower in (
                ("pytorch", "stock", 2.0), ("pytorch", "tuned", 0.5), ("jax", "stock", 1.0)):
            made.add_trial(framework, network, batch, tuning=tuning, slower=slower)
        made.add_trial("jax", network, batch, tuning="tuned", status="unsupported", reason=REASON)
    for row in made.processes:
        tuned = ["channels_last"] if "tuned-" in row["trial"] + "-" else []
        lstm = ["cuDNN LSTM"] if "lstm32" in row["trial"] else []
        row["settings"] = "; ".join(["eager", *tuned, *lstm]) if "pytorch" in row["trial"] else ""
    return reader.read(made.write(tmp_path / "campaign"))


def test_each_tier_says_what_it_sets_and_a_missing_one_has_a_dash_with_the_reason(campaign):
    table = tiers.table(campaign, summary.summarise(campaign))
    assert table.to_dict("records") == [
        {"framework": "pytorch", "stock": "eager; cuDNN LSTM (lstm32)",
         "tuned": "eager; channels_last; cuDNN LSTM (lstm32)"},
        {"framework": "jax", "stock": "defaults", "tuned": f"- ({REASON})"}]


def test_settings_are_a_column_of_trials_only_where_runners_say_them(campaign, made, tmp_path):
    rows = summary.rewrite(campaign.folder).set_index("trial")
    assert rows.loc["pytorch-2.13.0-lstm32-16-fp32-tuned", "settings"] == \
        "eager; channels_last; cuDNN LSTM"
    header = (campaign.folder / "trials.csv").read_text().splitlines()[0]
    assert header.endswith("copies_error,settings")
    older = reader.read(made.write(tmp_path / "older"))
    assert tiers.table(older, summary.rewrite(older.folder)).empty
    assert "settings" not in (older.folder / "trials.csv").read_text().splitlines()[0]


def test_rankings_stay_within_a_tier_and_the_best_of_each_cross_them(campaign, tmp_path):
    rows = summary.summarise(campaign)
    speeds = ranking.relative(campaign, rows)
    fastest = {trial for trial in speeds.loc[speeds["verdict"] == "fastest", "trial"]
               if "alexnet" in trial}
    assert fastest == {"jax-1.0-alexnet_cifar-128-fp32-stock",
                       "pytorch-2.13.0-alexnet_cifar-128-fp32-tuned"}
    best = ranking.at_best(rows)
    assert best["tuning"].tolist() == ["tuned", "stock"] * 2
    keys = ranking.ACROSS_TIERS
    table = tables.answer(best, ranking.relative(campaign, best, keys), keys)
    row = table.iloc[0]
    assert row["pytorch (ms)"].endswith("), tuned") and row["jax (ms)"].endswith("), stock")
    assert row["verdict"].startswith("pytorch ") and row["verdict"].endswith(" as fast as jax")
    report.write([campaign.folder], tmp_path / "report", plots=False)
    page = (tmp_path / "report" / "report.md").read_text()
    assert "## Each framework at its best" in page and "## What each tier sets" in page


def test_rows_of_one_tier_have_no_table_of_the_best(made, tmp_path):
    rows = summary.summarise(reader.read(made.write(tmp_path)))
    assert ranking.at_best(rows).empty


def test_a_tier_that_equals_another_one_is_ranked_with_its_row(draw_records, tmp_path):
    made = draw_records(networks=())
    for tuning, slower in (("stock", 2.0), ("compiled", 1.5)):
        made.add_trial("pytorch", "alexnet_cifar", 128, tuning=tuning, slower=slower)
    stock = made.add_trial("jax", "alexnet_cifar", 128)
    made.add_trial("jax", "alexnet_cifar", 128, tuning="compiled", status="unsupported",
                   reason="same as stock: jax.jit")
    campaign = reader.read(made.write(tmp_path / "campaign"))
    rows = summary.summarise(campaign)
    alone = ranking.relative(campaign, rows)
    assert len(alone) == 3
    shown, speeds = ranking.filled(campaign, rows, alone)
    assert shown["same"].tolist() == ["", "", "", "stock"] and len(speeds) == 4
    table = tables.answer(shown, speeds)
    assert table["jax (ms)"].iloc[1] == table["jax (ms)"].iloc[0] + ", = stock"
    ratios = [float(verdict.partition("jax ")[2].partition(" (")[0])
              for verdict in table["verdict"]]
    assert ratios == pytest.approx([2.0, 1.5], rel=0.1)
    report.write([campaign.folder], tmp_path / "report", plots=False)
    assert ", = stock | jax " in (tmp_path / "report" / "report.md").read_text()
    assert grids.answer(grids.read(campaign.folder)).rows[1][4].text.endswith(", = stock")
    made.meta["trials"] = [trial for trial in made.meta["trials"] if trial["trial"] != stock]
    made.processes = [row for row in made.processes if row["trial"] != stock]
    made.windows = [row for row in made.windows if row["trial"] != stock]
    campaign = reader.read(made.write(tmp_path / "without"))
    rows = summary.summarise(campaign)
    assert ranking.filled(campaign, rows, alone)[0]["status"].iloc[-1] == "unsupported"
