"""The MXNet runner."""
