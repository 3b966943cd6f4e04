"""The proof of sameness: each trial's check against the NumPy reference."""
