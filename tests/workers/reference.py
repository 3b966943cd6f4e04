"""The reference runner under a name of the tests' own, for the faulty ones to change."""

from runners.reference.runner import Runner

__all__ = ["Runner"]
