"""Why the slower rows of a campaign are slower, a row for each of them beside the fastest of its workload, in a few words.

`analysis.explain.gap` takes the pair apart; `dlbench explain` writes the whole of it. A pair that cannot be taken apart says why not.
"""

import pandas as pd

from analysis.display import ranking
from analysis.display.numbers import TIME_UNITS, best_unit, number
from analysis.display.ranking import GROUP
from analysis.explain import gap as explain
from analysis.records.reader import Campaign
from analysis.trials.breakdown import NotExplained

TOLD = 0.1  # of the gap: parts at least that large are named
TRACED = ("kernels", "operators")


def table(campaign: Campaign, speeds: pd.DataFrame) -> pd.DataFrame:
    """Explain every row of `speeds` (what `ranking.relative` returns) that is shown to be slower; empty without traces."""
    traced = {trial for name in TRACED for trial in getattr(campaign, name)["trial"]}
    rows = []
    for _, group in speeds[speeds["trial"].isin(traced)].groupby(GROUP, sort=False, dropna=False):
        for _, fastest in group[group["verdict"] == ranking.FASTEST].iterrows():
            for _, slower in group[group["verdict"] == "slower"].iterrows():
                rows.append({**slower[GROUP], "slower": slower["contestant"], "faster": fastest["contestant"],
                             **_reasons(campaign, fastest, slower)})
    return ranking.without_constants(pd.DataFrame(rows), speeds) if rows else pd.DataFrame()


def _reasons(campaign: Campaign, fastest: "pd.Series[str]", slower: "pd.Series[str]") -> dict[str, str]:
    """How much longer a step takes, and the parts that make it so, from the largest down."""
    try:
        gap = explain.explain(*(explain.side_of(row["contestant"], campaign, row["trial"]) for row in (fastest, slower)))
    except NotExplained as refusal:
        return {"longer a step": "", "mostly": f"not explained: {str(refusal).partition(': ')[2]}", "parts sum to": ""}
    unit, scale = best_unit([gap.a.step_seconds, gap.b.step_seconds], TIME_UNITS)
    large = gap.parts[gap.parts["share"].abs() >= TOLD].sort_values("share", ascending=False)
    parts = [f"{_name(part, fastest, slower)} {seconds / scale:+.3g} {unit} ({100 * share:.0f} %)"
             for part, seconds, share in zip(large["part"], large["difference_seconds"], large["share"], strict=True)]
    whole = gap.explained_seconds / gap.difference.value if gap.difference.value else float("nan")
    return {"longer a step": f"{number(gap.difference.value / scale)} {unit}", "mostly": "; ".join(parts),
            "parts sum to": f"{100 * whole:.0f} %"}


def _name(part: str, fastest: "pd.Series[str]", slower: "pd.Series[str]") -> str:
    """A part with the names of the sides, which it calls A and B."""
    words = (("(A ", f"({fastest['contestant']} "), ("(B ", f"({slower['contestant']} "),
             (" in A, ", f" in {fastest['contestant']}, "), (" in B)", f" in {slower['contestant']})"))
    for letter, name in words:
        part = part.replace(letter, name)
    return part
