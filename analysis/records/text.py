"""Text from outside, made fit for one cell of a table, one message or one line of a terminal."""

LONGEST_REASON = 1000


def one_line(text: str, most: int = LONGEST_REASON) -> str:
    """Return printable text of at most `most` characters on one line.

    Line breaks, escape codes, lone surrogates and marks that reverse text become spaces.
    """
    flat = "".join(each if each.isprintable() else " " for each in text[:most + 1])
    return flat if len(flat) <= most else f"{flat[:most - 4]} ..."
