"""Reports of the operation studies."""
