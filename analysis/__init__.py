"""Records in, answers out: statistics, tables, plots and reports. Never measures; imports neither harness nor runners."""
