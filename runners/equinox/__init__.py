"""The Equinox runner."""
