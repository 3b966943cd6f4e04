"""Verdicts on two releases, frameworks or campaigns."""
