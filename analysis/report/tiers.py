"""What each tier sets in each framework, and why a framework lacks a tier."""

import pandas as pd

from analysis.display import ranking
from analysis.records.reader import Campaign

TIERS = ("stock", "compiled", "tuned", "uncompiled")
NOTHING, NONE = "defaults", "-"


def table(campaign: Campaign, trials: pd.DataFrame) -> pd.DataFrame:
    """List the settings of each framework's tiers; a tier that it lacks has a dash and the reason.

    Empty for campaigns whose runners do not say what they set.
    """
    if not campaign.tells_settings or not (trials["settings"] != "").any():
        return pd.DataFrame()
    several = trials.groupby("framework")["release"].transform("nunique") > 1
    names = trials["framework"].where(~several, trials["framework"] + " " + trials["release"])
    known = [*TIERS, *sorted(set(trials["tuning"]) - {*TIERS})]
    tiers = [tier for tier in known if tier in set(trials["tuning"])]
    return pd.DataFrame([
        {"framework": name, **{tier: _cell(own[own["tuning"] == tier]) for tier in tiers}}
        for name, own in trials.groupby(names, sort=False)])


def _cell(rows: pd.DataFrame) -> str:
    """Write the settings of one framework's rows of a tier, or why it has none."""
    ok = rows[rows["status"] == "ok"]
    if ok.empty:
        refused = rows[rows["status"] == "unsupported"]["reason"]
        reason = refused.mode().iloc[0] if len(refused) else \
            "no row was measured" if len(rows) else "not in this campaign"
        return f"{NONE} ({reason})"
    settings = [list(filter(None, text.split("; "))) for text in ok["settings"]]
    every = dict.fromkeys(setting for own in settings for setting in own)
    return "; ".join(_where(setting, ok[[setting in own for own in settings]], ok)
                     for setting in every) or NOTHING


def _where(setting: str, having: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Say a setting, and of which rows it is if not of all."""
    if len(having) == len(rows):
        return setting
    for column in ("network", "precision", "device_kind", "devices"):
        values = dict.fromkeys(having[column])
        if rows[column].isin(values).sum() == len(having):
            said = (ranking.one_setting(column, value) for value in values)
            return f"{setting} ({', '.join(said)})"
    return f"{setting} (in {len(having)} of {len(rows)} rows)"
