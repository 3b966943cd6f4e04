"""Framework recipes, interpreters, environments and containers."""
