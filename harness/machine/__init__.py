"""The machine: hardware, GPUs, and what would make its numbers untrustworthy."""
