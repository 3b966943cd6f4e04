"""What the analysis knows of each strategy by which devices train together."""
