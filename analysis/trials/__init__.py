"""One row per trial, from the records of its processes."""
