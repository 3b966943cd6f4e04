"""The kinds of process: inference, training to a target, training from files."""
