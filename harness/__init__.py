"""The driver: plan, environments, worker processes, records and the command line."""

VERSION = "0.1.0"
