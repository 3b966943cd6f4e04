"""The site's figures as data: their lines stand in the order of the campaign's settings."""

from analysis.display import palette
from analysis.records import reader
from analysis.site import figures
from analysis.trials import summary


def test_a_setting_without_the_first_frameworks_row_stands_where_the_campaign_has_it(draw_records, tmp_path):
    made = draw_records(networks=())
    for framework in ("pytorch", "tensorflow"):
        for network in ("fcn5", "alexnet_cifar", "resnet56"):
            made.add_trial(framework, network, 64)
    rows = summary.summarise(reader.read(made.write(tmp_path / "campaign")))
    rows.loc[(rows["framework"] == "pytorch") & (rows["network"] == "alexnet_cifar"), "verified"] = "no"
    figure = figures.step_time(rows, dict.fromkeys(rows["trial"], "page"))
    assert figure["layout"]["yaxis"]["categoryarray"] == ["fcn5, batch 64", "alexnet_cifar, batch 64", "resnet56, batch 64"]
    assert [trace["y"][0] for trace in figure["data"]] == ["fcn5, batch 64", "fcn5, batch 64"]
    assert [len(trace["y"]) for trace in figure["data"]] == [2, 3]


def test_each_marker_of_the_figures_has_a_symbol_on_the_site():
    looks = [*palette.FRAMEWORKS.values(), *palette.STRATEGIES.values(), palette.OTHER]
    assert {marker for _, marker in looks} <= set(figures.SYMBOLS)
