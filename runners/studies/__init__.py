"""Workers of the operation studies."""
