"""The CNTK runner."""
