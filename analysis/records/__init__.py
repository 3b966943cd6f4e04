"""Reading records, and the hashes that hold them together."""
