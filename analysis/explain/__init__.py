"""Why one trial is slower than another."""
