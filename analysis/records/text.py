"""Text from outside, made fit for one cell of a table, one message or one line of a terminal."""

LONGEST_REASON = 1000
LONGEST_MESSAGE = 500


class BadRecords(ValueError):
    """Records that cannot be read; the message names the file, the column or line, the remedy."""

    def __init__(self, message: str):
        super().__init__(shortened(message, LONGEST_MESSAGE))


def one_line(text: str, most: int = LONGEST_REASON) -> str:
    """Return printable text of at most `most` characters on one line.

    Line breaks, escape codes, lone surrogates and marks that reverse text become spaces.
    """
    flat = _flat(text[:most + 1])
    return flat if len(flat) <= most else f"{flat[:most - 4]} ..."


def shortened(text: str, most: int) -> str:
    """Return one line as `one_line` does, but leave out its middle."""
    if len(text) <= most:
        return _flat(text)
    part = (most - 5) // 2
    return _flat(f"{text[:part]} ... {text[-part:]}")


def _flat(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
