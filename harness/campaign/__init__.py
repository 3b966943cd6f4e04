"""One execution of a suite: processes in order, records, traces."""
