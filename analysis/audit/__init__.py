"""Deriving every published number again."""
