"""What all reports share: palette, tables, plots."""
