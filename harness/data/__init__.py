"""Arrays, data sets and inputs: what the driver gives to every worker."""
