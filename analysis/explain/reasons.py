"""Why the slower rows of a campaign are slower, each beside the fastest of its workload.

`analysis.explain.gap` takes the pair apart; `dlbench explain` shows all of it.
"""

from typing import Any

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import number, percent
from analysis.display.ranking import FASTEST, GROUP, SLOWER
from analysis.explain.gap import explain, side_of
from analysis.records.reader import Campaign
from analysis.trials.breakdown import NotExplained

# Parts are named from this share of the gap on.
LARGE = 0.1


def table(campaign: Campaign, speeds: pd.DataFrame) -> pd.DataFrame:
    """Explain every row that is shown to be slower; empty without traces.

    `speeds` is what `ranking.relative` returns.
    """
    traced = {*campaign.kernels["trial"], *campaign.operators["trial"]}
    lines = []
    for _, group in speeds[speeds["trial"].isin(traced)].groupby(GROUP, sort=False, dropna=False):
        for _, fastest in group[group["verdict"] == FASTEST].iterrows():
            for _, slower in group[group["verdict"] == SLOWER].iterrows():
                lines.append({**slower[GROUP], "slower": slower["contestant"],
                              "faster": fastest["contestant"],
                              **_reasons(campaign, fastest, slower)})
    return ranking.without_constants(pd.DataFrame(lines), speeds) if lines else pd.DataFrame()


def _reasons(
        campaign: Campaign, fastest: "pd.Series[Any]", slower: "pd.Series[Any]") -> dict[str, str]:
    """Say how much longer a step takes, and which parts make it so, the largest first."""
    try:
        gap = explain(*(side_of(row["contestant"], campaign, row["trial"])
                        for row in (fastest, slower)))
    except NotExplained as refusal:
        reason = str(refusal).partition(": ")[2]
        return {"longer a step": "", "mostly": f"not explained: {reason}", "parts sum to": ""}
    unit, scale = gap.unit
    large = gap.parts[gap.parts["share"].abs() >= LARGE].sort_values("share", ascending=False)
    parts = [f"{gap.named(row['part'])} {row['difference_seconds'] / scale:+.3g} {unit} "
             f"({percent(row['share'], '.0f')})" for row in large.to_dict("records")]
    whole = gap.difference.value
    explained = gap.explained_seconds / whole if whole else float("nan")
    return {"longer a step": f"{number(whole / scale)} {unit}", "mostly": "; ".join(parts),
            "parts sum to": percent(explained, ".0f")}
