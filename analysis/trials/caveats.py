"""What people found out about published rows: `caveats.csv` in a campaign's folder.

The file is written by hand and belongs to the records: every table shows its caveats. A caveat that
says `unranked` takes the row's proof back, so the row leaves every ranking and every ratio.
"""

import csv

import pandas as pd

from analysis.records.reader import Campaign
from analysis.records.text import BadRecords

FILE = "caveats.csv"
COLUMNS = ("trial", "what", "since", "ranking")
RANKED, UNRANKED = "ranked", "unranked"


def read(campaign: Campaign) -> pd.DataFrame:
    """Read a campaign's caveats; an empty table without a file. Raises BadRecords."""
    file = campaign.folder / FILE
    if not file.is_file():
        return pd.DataFrame(columns=list(COLUMNS))
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text, restkey="more"))
    names = {trial["trial"] for trial in campaign.trials}
    for number, row in enumerate(rows, start=2):
        if fault := _fault(row, names):
            raise BadRecords(f"{file}: row {number}: {fault}")
    return pd.DataFrame(rows, columns=list(COLUMNS))


def apply(rows: pd.DataFrame, campaign: Campaign) -> pd.DataFrame:
    """Return the rows of trials.csv with their caveats; rows that are unranked are not verified."""
    found = read(campaign)
    texts = _texts(found)
    rows = rows.assign(caveat=[texts.get(trial, "") for trial in rows["trial"]])
    marked = rows["caveat"] != ""
    unranked = rows["trial"].isin(found.loc[found["ranking"] == UNRANKED, "trial"])
    rows.loc[unranked, "verified"] = "no"
    words = unranked.map({True: "unranked by a caveat: ", False: "caveat: "}) + rows["caveat"]
    reasons = words.where(rows["reason"] == "", words + "; " + rows["reason"])
    return rows.assign(reason=rows["reason"].mask(marked, reasons))


def by_trial(campaign: Campaign) -> dict[str, str]:
    """Return what each trial's caveats say."""
    return _texts(read(campaign))


def _texts(found: pd.DataFrame) -> dict[str, str]:
    texts = found["what"] + " (since " + found["since"] + ")"
    return {str(trial): "; ".join(own) for trial, own in texts.groupby(found["trial"])}


def _fault(row: dict[str, str], names: set[str]) -> str:
    """Return what is wrong with a row and how to mend it, or ""."""
    if "more" in row or None in row.values() or set(row) != set(COLUMNS):
        return f"write the columns {','.join(COLUMNS)}, a value each, and quote text with commas"
    empty = [column for column in COLUMNS if not row[column].strip()]
    if empty:
        return f"column {empty[0]} is empty: write a value"
    if row["trial"] not in names:
        return f"column trial: {row['trial']} is no trial of campaign.json: copy it from trials.csv"
    if row["ranking"] not in (RANKED, UNRANKED):
        return f"column ranking: {row['ranking']!r}: write {RANKED} or {UNRANKED}"
    return ""
