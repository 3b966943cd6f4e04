"""The site of published results."""
