"""Tables in a terminal."""

import pandas as pd
from rich.markup import escape
from rich.table import Table


def table(frame: pd.DataFrame, title: str, right: tuple[str, ...] = ("batch",)) -> Table:
    """Make a table of texts; columns named in `right` are aligned to the right."""
    shown = Table(title=escape(title), caption_justify="left")
    for column in frame.columns.astype(str):
        shown.add_column(escape(column), justify="right" if column in right else "left",
                         overflow="fold")
    for cells in frame.itertuples(index=False):
        shown.add_row(*(escape(str(cell)) for cell in cells))
    return shown
