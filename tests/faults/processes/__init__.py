"""The reference as one process or many that break, hang, lie or run out of memory."""
