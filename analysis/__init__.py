"""Records in, answers out: statistics, tables, plots and reports. Never measures."""
