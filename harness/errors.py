"""The one error of wrong use or input: the command line prints its message and exits with 2, without a traceback."""


class WrongUse(Exception):
    """Bad input. The message names the file and key (where there are any), what is wrong, and the remedy."""
