"""The driver: plan, environments, worker processes, records, command line. Modern Python; the only folder that knows all others."""

VERSION = "0.1.0"
