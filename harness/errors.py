"""The error of wrong use or input: the command line prints its message and exits with 2."""


class WrongUse(Exception):
    """Bad input. The message names file and key, what is wrong, and the remedy."""
