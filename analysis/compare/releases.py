"""Ranges of releases, as in 2.9..2.13, and their order."""

from typing import NamedTuple

from packaging.version import InvalidVersion, Version


class Range(NamedTuple):
    """Releases from `low` to `high`, both included; 2.13 includes 2.13.1."""

    low: Version
    high: Version

    def holds(self, release: str) -> bool:
        """Return whether a release lies in the range; one that is no version lies in none."""
        try:
            version = Version(release)
        except InvalidVersion:
            return False
        parts = len(self.high.release)
        below = version <= self.high or version.release[:parts] == self.high.release
        return self.low <= version and below


def read_range(text: str) -> Range:
    """Read `2.9..2.13`, or one release. Raises ValueError with what to write."""
    low, dots, high = text.partition("..")
    try:
        found = Range(Version(low), Version(high if dots else low))
    except InvalidVersion:
        raise ValueError(f"{text}: write releases as in 2.9..2.13, or one as in 2.13.0") from None
    if found.high < found.low:
        raise ValueError(f"{text}: ends before it begins")
    return found
