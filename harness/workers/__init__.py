"""Worker processes, seen from the driver."""
